/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of abi/cua.h from the side of a C99 program that opens the library with dlopen:
 * every function with good arguments and with every kind of bad one.
 *   contract LIBRARY IDS_MODEL TEXT_MODEL UNMARKED_MODEL
 * IDS_MODEL has 512 vocabulary rows and no tokenizer, TEXT_MODEL has one, UNMARKED_MODEL lacks the
 * marker.
 *
 * Structs and buffers end where a page without access begins, so that a byte read or written beyond
 * them ends the test.
 */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "open_library.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int checks, failures;

#define CHECK(condition)                                              \
  do {                                                                \
    ++checks;                                                         \
    if (!(condition)) {                                               \
      ++failures;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

/* ---- memory that ends at a page without access ---------------------------------------------- */

enum { CANARY = 0xa5 };

static struct {
  void *at;
  size_t bytes;
} fenced_blocks[4096];
static size_t n_fenced;

/* `size` bytes, filled with the canary. Lives until free_fenced(). */
static void *fenced(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t body = (size + page - 1) / page * page, bytes = body + page;
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || n_fenced == COUNT(fenced_blocks) ||
      mprotect(at + body, page, PROT_NONE) != 0) {
    fprintf(stderr, "no memory for the test\n");
    exit(1);
  }
  fenced_blocks[n_fenced].at = at;
  fenced_blocks[n_fenced++].bytes = bytes;
  memset(at, CANARY, body);
  return at + body - size;
}

static void *fenced_copy(const void *from, size_t size) {
  return size == 0 ? fenced(0) : memcpy(fenced(size), from, size);
}

static void free_fenced(void) {
  while (n_fenced > 0) {
    --n_fenced;
    munmap(fenced_blocks[n_fenced].at, fenced_blocks[n_fenced].bytes);
  }
}

static int untouched(const void *at, size_t size) {
  const unsigned char *bytes = at;
  size_t i;
  for (i = 0; i < size; ++i) {
    if (bytes[i] != CANARY) return 0;
  }
  return 1;
}

/* ---- a call and its error ------------------------------------------------------------------- */

/* Sizes of cua_error that every call is made with: 0 stands for NULL, the last three are ignored.
 */
static const uint32_t error_sizes[] = {0, 1032, 1040, 65536, 1031, 65537, 4};
enum { IGNORED_FROM = 4 };

static cua_error *make_error(size_t variant) {
  const uint32_t size = error_sizes[variant];
  cua_error *error;
  if (size == 0) return NULL;
  /* Rounded up, so that the struct is aligned where it ends at the fence. */
  error = fenced((size + 7) / 8 * 8);
  error->struct_size = size == 4 ? 0 : size;
  return error;
}

/* needle: what the message must contain; "" for a message that must be empty. */
static void check_error(int line, const char *call, size_t variant, const cua_error *error,
                        int32_t got, int32_t want, const char *needle) {
  const char *fault = NULL;
  const char *message = "";
  ++checks;
  if (error != NULL && variant >= IGNORED_FROM) {
    if (!untouched(&error->code, (size_t)(error_sizes[variant] + 7) / 8 * 8 - sizeof(uint32_t))) {
      fault = "a cua_error outside the limits was written to";
    }
  } else if (error != NULL) {
    if (memchr(error->message, 0, sizeof error->message) == NULL) {
      fault = "the message is not terminated";
    } else {
      message = error->message;
      if (error->code != got) fault = "code and result differ";
      if (*needle == '\0' ? *message != '\0' : strstr(message, needle) == NULL) {
        fault = "wrong message";
      }
    }
    if (error->struct_size != error_sizes[variant]) fault = "struct_size was changed";
    if (!untouched(error + 1, error_sizes[variant] - sizeof *error)) {
      fault = "written beyond the library's own cua_error";
    }
  }
  if (got != want) fault = "wrong code";
  if (fault == NULL) return;
  ++failures;
  fprintf(stderr, "%s:%d: %s: %s (error %u: code %" PRId32 ", wanted %" PRId32 " \"%s\": \"%s\")\n",
          __FILE__, line, call, fault, error_sizes[variant], got, want, needle, message);
}

/* Makes the call, in which `error` is the cua_error, once with every kind of cua_error. */
#define GIVES(want, needle, call)                                        \
  do {                                                                   \
    size_t variant_;                                                     \
    for (variant_ = 0; variant_ < COUNT(error_sizes); ++variant_) {      \
      cua_error *const error = make_error(variant_);                     \
      const int32_t got_ = (call);                                       \
      check_error(__LINE__, #call, variant_, error, got_, want, needle); \
    }                                                                    \
  } while (0)

#define SUCCEEDS(call) GIVES(CUA_OK, "", call)

/* ---- arguments ------------------------------------------------------------------------------ */

static int is_cpu;
static const char *ids_model, *text_model, *unmarked_model;
enum { VOCABULARY = 512 }; /* of ids_model */

static cua_engine_options make_options(const char *model) {
  cua_engine_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.model_dir = fenced_copy(model, strlen(model)); /* no terminator */
  options.model_dir_length = strlen(model);
  options.threads = 1;
  return options;
}

static cua_engine *open_engine(const cua_engine_options *options) {
  cua_error error;
  cua_engine *engine = NULL;
  error.struct_size = sizeof error;
  if (create(options, &engine, &error) != CUA_OK) {
    fprintf(stderr, "cannot open a model: %d %s\n", error.code, error.message);
    exit(1);
  }
  return engine;
}

static const uint32_t some_ids[] = {17, 3, 500, 44, 45, 46, 0, 511, 32, 33, 34, 99};

static cua_prompt make_prompt(void) {
  cua_prompt prompt;
  memset(&prompt, 0, sizeof prompt);
  prompt.struct_size = sizeof prompt;
  prompt.n_options = 3;
  prompt.ids = fenced_copy(some_ids, sizeof some_ids);
  prompt.n_ids = COUNT(some_ids);
  return prompt;
}

/* An array of n structs, `stride` bytes each, copied from `from` where the struct ends before. */
static void *make_array(const void *from, size_t size, uint32_t n, uint32_t stride) {
  char *array = fenced((size_t)n * stride);
  uint32_t i;
  for (i = 0; i < n; ++i) {
    char *at = array + (size_t)i * stride;
    memset(at, 0, stride);
    memcpy(at, (const char *)from + i * size, size < stride ? size : stride);
    memcpy(at, &stride, sizeof stride);
  }
  return array;
}

static cua_score *make_scores(uint32_t n, uint32_t stride) {
  char *array = fenced((size_t)n * stride);
  uint32_t i;
  for (i = 0; i < n; ++i) memcpy(array + (size_t)i * stride, &stride, sizeof stride);
  return (cua_score *)array;
}

/* Text that is not UTF-8, one of each kind, and where its fault begins. */
static const struct {
  const char *bytes;
  size_t length, offset;
} malformed[] = {
    {"\x80", 1, 0},             /* stray continuation */
    {"a\xbf", 2, 1},            /* the same, later */
    {"\xc3", 1, 0},             /* cut after one byte of two, ... */
    {"\xe2\x82", 2, 0},         /* ... two of three, ... */
    {"\xf0\x9f\x98", 3, 0},     /* ... three of four */
    {"\xe2\x28\xa1", 3, 0},     /* interrupted */
    {"\xe2\x82(", 3, 0},        /* interrupted later */
    {"\xf0\x9f\x98(", 4, 0},    /* and later still */
    {"\xc0\x80", 2, 0},         /* overlong NUL */
    {"\xc1\xbf", 2, 0},         /* overlong, two bytes */
    {"\xe0\x9f\xbf", 3, 0},     /* overlong, three bytes */
    {"\xf0\x8f\xbf\xbf", 4, 0}, /* overlong, four bytes */
    {"\xed\xa0\x80", 3, 0},     /* first surrogate */
    {"\xed\xbf\xbf", 3, 0},     /* last surrogate */
    {"\xf4\x90\x80\x80", 4, 0}, /* above U+10FFFF */
    {"\xf5\x80\x80\x80", 4, 0}, /* lead bytes that lead nothing */
    {"\xfe", 1, 0},
    {"\xff", 1, 0},
    {"\xc4\xe3\xba\xc3", 4, 0},               /* GBK */
    {"\xff\xfeh\0i\0", 6, 0},                 /* UTF-16 with its mark */
    {"0123456701234567\xed\xa0\x80", 19, 16}, /* after whole words of ASCII */
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf8\x88\x80\x80\x80", 14, 9},
};

/* ---- cua_abi_version, cua_build_info -------------------------------------------------------- */

static void test_versions(void) {
  const uint32_t minor = CUA_ABI_MINOR; /* 0: "always at least that", says the compiler */
  CHECK(abi_version() >> 16 == CUA_ABI_MAJOR);
  CHECK((abi_version() & 0xffff) >= minor);
  CHECK(build_info() == build_info());
  CHECK(strstr(build_info(), "\"version\"") != NULL);
  CHECK(strstr(build_info(), "\"backend\"") != NULL);
  CHECK(strstr(build_info(), "\"architectures\"") != NULL);
  CHECK(strstr(build_info(), "\"cuda\"") != NULL);
  CHECK(strstr(build_info(), "\"cublaslt\"") != NULL);
}

/* ---- cua_engine_create ---------------------------------------------------------------------- */

/* Every refusal stores NULL. */
#define REFUSES(want, needle, options)                       \
  do {                                                       \
    cua_engine *engine_ = (cua_engine *)&engine_;            \
    GIVES(want, needle, create((options), &engine_, error)); \
    CHECK(engine_ == NULL);                                  \
  } while (0)

static void check_opens(int line, const cua_engine_options *options) {
  cua_error error;
  cua_engine *engine = NULL;
  int32_t code;
  error.struct_size = sizeof error;
  code = create(options, &engine, &error);
  ++checks;
  if (code != CUA_OK || engine == NULL || error.code != CUA_OK || error.message[0] != '\0') {
    ++failures;
    fprintf(stderr, "%s:%d: does not open: %d %s\n", __FILE__, line, code, error.message);
  }
  destroy(engine);
}
#define OPENS(options) check_opens(__LINE__, options)

/* options as `size` bytes that end at the fence. */
static cua_engine_options *sized_options(const cua_engine_options *options, uint32_t size) {
  return make_array(options, sizeof *options, 1, size);
}

static void test_create_sizes(void) {
  static const uint32_t refused[] = {0, 1, 4, 55, 65537, 0x7fffffff, 0xffffffff};
  static const uint32_t accepted[] = {56, 64, 80, 96, 104, 65536};
  static const uint32_t unknown[] = {96, 97, 103, 4095, 65535};
  cua_engine_options options = make_options(ids_model);
  size_t i;
  for (i = 0; i < COUNT(refused); ++i) {
    options.struct_size = refused[i];
    REFUSES(CUA_INVALID_ARGUMENT, "options.struct_size", &options);
  }
  for (i = 0; i < COUNT(accepted); ++i) OPENS(sized_options(&options, accepted[i]));
  for (i = 0; i < COUNT(unknown); ++i) {
    char *large = (char *)sized_options(&options, 65536);
    char needle[32];
    large[unknown[i]] = 1;
    sprintf(needle, "options sets a field at byte %u ", unknown[i]);
    REFUSES(CUA_INVALID_ARGUMENT, needle, (cua_engine_options *)large);
    if (unknown[i] < 104) {
      large = (char *)sized_options(&options, 104);
      large[unknown[i]] = (char)0x80;
      REFUSES(CUA_INVALID_ARGUMENT, needle, (cua_engine_options *)large);
    }
    /* The same byte is nothing to the library where struct_size ends before it. */
    large = (char *)sized_options(&options, 65536);
    large[unknown[i]] = 1;
    memcpy(large, &unknown[i], sizeof unknown[i]);
    OPENS((cua_engine_options *)large);
  }
  /* What struct_size leaves out is zero, whatever is there; a field may be cut in the middle. */
  options = make_options(ids_model);
  options.threads = 0xffffffff;
  options.precision = 0xffffffff;
  options.prefix = NULL;
  options.prefix_length = 5;
  options.plans_length = 5;
  options.struct_size = 56;
  OPENS(&options);
  options.threads = 1;
  for (options.struct_size = 56; options.struct_size <= 60; ++options.struct_size) OPENS(&options);
  options.struct_size = 61;
  REFUSES(CUA_INVALID_ARGUMENT, "options.precision", &options);
  options.precision = 0;
  for (options.struct_size = 61; options.struct_size <= 72; ++options.struct_size) OPENS(&options);
  options.struct_size = 80;
  REFUSES(CUA_INVALID_ARGUMENT, "options.prefix", &options);
  free_fenced();
}

static void test_create(void) {
  cua_engine_options options = make_options(ids_model);
  cua_engine *engine;
  size_t i;
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", create(&options, NULL, error));
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", create(NULL, NULL, error));
  REFUSES(CUA_INVALID_ARGUMENT, "options is NULL", NULL);
  destroy(NULL);
  OPENS(&options);
  for (i = 1; i < COUNT(error_sizes); ++i) { /* a good call clears the error */
    cua_error *error = make_error(i);
    check_error(__LINE__, "create", i, error, create(&options, &engine, error), CUA_OK, "");
    destroy(engine);
  }

  options.model_dir = NULL;
  REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir", &options);
  options.model_dir_length = 0;
  REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir", &options);
  options.model_dir = ids_model;
  REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir", &options);
  options.model_dir_length = UINT64_MAX;
  REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir_length", &options);
  options.model_dir_length = (uint64_t)1 << 63;
  REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir_length", &options);
  options.model_dir_length = strlen(ids_model) + 1; /* the terminator */
  REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir", &options);

  options = make_options("/no/such/folder");
  REFUSES(CUA_BAD_MODEL, "/no/such/folder", &options);
  options = make_options("/dev/null");
  REFUSES(CUA_BAD_MODEL, "/dev/null", &options);
  options = make_options(unmarked_model);
  REFUSES(CUA_BAD_MODEL, "cua_s1_export.json", &options);

  options = make_options(ids_model);
  options.graph_mode = 3;
  REFUSES(CUA_INVALID_ARGUMENT, "options.graph_mode", &options);
  options.graph_mode = 0xffffffff;
  REFUSES(CUA_INVALID_ARGUMENT, "options.graph_mode", &options);
  if (is_cpu) {
    options.graph_mode = CUA_GRAPH_EXACT;
    REFUSES(CUA_UNSUPPORTED, "graph_mode", &options);
    options.graph_mode = CUA_GRAPH_BUCKET;
    REFUSES(CUA_UNSUPPORTED, "graph_mode", &options);
  }
  options = make_options(ids_model);
  options.precision = 1;
  REFUSES(CUA_UNSUPPORTED, "precision", &options);
  options.precision = 2;
  REFUSES(CUA_INVALID_ARGUMENT, "options.precision", &options);
  options.precision = 0;
  options.threads = 0xffffffff;
  REFUSES(CUA_INVALID_ARGUMENT, "options.threads", &options);
  options.threads = 2;
  OPENS(&options);
  if (is_cpu) {
    options.device = 1000; /* ignored by the CPU library */
    OPENS(&options);
    options.device = -1;
    OPENS(&options);
  }

  options = make_options(ids_model);
  options.prefix_length = 1;
  REFUSES(CUA_INVALID_ARGUMENT, "options.prefix", &options);
  options.prefix = fenced_copy("x", 1);
  REFUSES(CUA_UNSUPPORTED, "prefix", &options); /* no tokenizer */
  options.prefix_length = 0;
  OPENS(&options);
  options = make_options(ids_model);
  options.plans_length = 1;
  REFUSES(CUA_INVALID_ARGUMENT, "options.plans", &options);
  options.plans = fenced_copy("a\0b", 3);
  options.plans_length = 3;
  REFUSES(CUA_INVALID_ARGUMENT, "options.plans", &options);
  options.plans_length = 1;
  if (is_cpu) OPENS(&options); /* ignored there */

  for (i = 0; i < COUNT(malformed); ++i) {
    const char *bytes = fenced_copy(malformed[i].bytes, malformed[i].length);
    options = make_options(ids_model);
    options.model_dir = bytes;
    options.model_dir_length = malformed[i].length;
    REFUSES(CUA_INVALID_ARGUMENT, "options.model_dir is not UTF-8", &options);
    options = make_options(ids_model);
    options.prefix = bytes;
    options.prefix_length = malformed[i].length;
    REFUSES(CUA_INVALID_ARGUMENT, "options.prefix is not UTF-8", &options);
    options = make_options(ids_model);
    options.plans = bytes;
    options.plans_length = malformed[i].length;
    REFUSES(CUA_INVALID_ARGUMENT, "options.plans is not UTF-8", &options);
  }
  free_fenced();
}

/* A message that must be cut is cut where a character ends. */
static void test_long_message(void) {
  enum { LONGEST = 3000 };
  char path[LONGEST + 4];
  size_t shift;
  for (shift = 0; shift < 3; ++shift) {
    cua_engine_options options;
    cua_engine *engine = NULL;
    cua_error error;
    size_t length = shift, end;
    memset(path, 'x', shift);
    while (length + 3 <= LONGEST) {
      memcpy(path + length, "\xe2\x82\xac", 3);
      length += 3;
    }
    path[length] = '\0';
    options = make_options(path);
    error.struct_size = sizeof error;
    CHECK(create(&options, &engine, &error) == CUA_BAD_MODEL);
    end = strlen(error.message);
    CHECK(end > sizeof error.message - 4 && end < sizeof error.message);
    CHECK(end >= 3 && memcmp(error.message + end - 3, "\xe2\x82\xac", 3) == 0);
  }
  free_fenced();
}

/* ---- cua_engine_describe -------------------------------------------------------------------- */

static void test_describe(const cua_engine *engine, const char *tokenizer) {
  uint64_t needed = 0, exact;
  char *json;
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", describe(NULL, NULL, 0, &needed, error));
  GIVES(CUA_INVALID_ARGUMENT, "needed is NULL", describe(engine, NULL, 0, NULL, error));
  GIVES(CUA_INVALID_ARGUMENT, "json is NULL", describe(engine, NULL, 1, &needed, error));
  GIVES(CUA_BUFFER_TOO_SMALL, "json", describe(engine, NULL, 0, &needed, error));
  exact = needed;
  CHECK(exact > 0 && exact < 65536);
  json = fenced(exact);
  needed = 0;
  GIVES(CUA_BUFFER_TOO_SMALL, "json", describe(engine, json, exact - 1, &needed, error));
  CHECK(needed == exact && untouched(json, exact));
  needed = 0;
  GIVES(CUA_BUFFER_TOO_SMALL, "json", describe(engine, json, 0, &needed, error));
  CHECK(needed == exact && untouched(json, exact));
  needed = 0;
  SUCCEEDS(describe(engine, json, exact, &needed, error));
  CHECK(needed == exact && json[0] == '{' && json[exact - 1] == '}');
  {
    static const char *const keys[] = {"\"model\"",      "\"tokenizer\"", "\"max_prompt_tokens\"",
                                       "\"vocabulary\"", "\"backend\"",   "\"device\""};
    char *text = fenced(exact + 1), *large = fenced(exact + 100);
    size_t i;
    memcpy(text, json, exact);
    text[exact] = '\0';
    for (i = 0; i < COUNT(keys); ++i) CHECK(strstr(text, keys[i]) != NULL);
    CHECK(strstr(text, tokenizer) != NULL);
    needed = 0;
    SUCCEEDS(describe(engine, large, exact + 100, &needed, error));
    CHECK(needed == exact && memcmp(large, json, exact) == 0);
    CHECK(untouched(large + exact, 100)); /* no terminator either */
    SUCCEEDS(describe(engine, large, UINT64_MAX, &needed, error));
    CHECK(needed == exact && untouched(large + exact, 100));
  }
  free_fenced();
}

/* ---- cua_tokenize --------------------------------------------------------------------------- */

static void test_tokenize(const cua_engine *engine, const cua_engine *without) {
  const char words[] = "Pick A, B or C: \xe2\x82\xac 12 <|im_end|>";
  const uint64_t length = sizeof words - 1;
  const char *text = fenced_copy(words, length);
  uint64_t count = 99, exact;
  uint32_t *ids;
  size_t i;
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL",
        tokenize(NULL, text, length, NULL, 0, &count, error));
  GIVES(CUA_INVALID_ARGUMENT, "count is NULL",
        tokenize(engine, text, length, NULL, 0, NULL, error));
  GIVES(CUA_INVALID_ARGUMENT, "ids is NULL",
        tokenize(engine, text, length, NULL, 1, &count, error));
  GIVES(CUA_INVALID_ARGUMENT, "text is NULL", tokenize(engine, NULL, 1, NULL, 0, &count, error));
  GIVES(CUA_INVALID_ARGUMENT, "text_length",
        tokenize(engine, text, UINT64_MAX, NULL, 0, &count, error));
  GIVES(CUA_UNSUPPORTED, "tokenizer.json", tokenize(without, text, length, NULL, 0, &count, error));
  GIVES(CUA_UNSUPPORTED, "tokenizer.json", tokenize(without, NULL, 0, NULL, 0, &count, error));
  for (i = 0; i < COUNT(malformed); ++i) {
    const char *bytes = fenced_copy(malformed[i].bytes, malformed[i].length);
    char needle[64];
    sprintf(needle, "text is not UTF-8 at byte %u", (unsigned)malformed[i].offset);
    GIVES(CUA_INVALID_ARGUMENT, needle,
          tokenize(engine, bytes, malformed[i].length, NULL, 0, &count, error));
  }
  count = 99;
  SUCCEEDS(tokenize(engine, NULL, 0, NULL, 0, &count, error));
  CHECK(count == 0);
  count = 99;
  SUCCEEDS(tokenize(engine, text, 0, NULL, 0, &count, error));
  CHECK(count == 0);
  GIVES(CUA_BUFFER_TOO_SMALL, "ids", tokenize(engine, text, length, NULL, 0, &count, error));
  exact = count;
  CHECK(exact > 5 && exact < length);
  ids = fenced(exact * sizeof *ids);
  for (i = 0; i < exact; ++i) {
    count = 0;
    check_error(__LINE__, "tokenize", 0, NULL, tokenize(engine, text, length, ids, i, &count, NULL),
                CUA_BUFFER_TOO_SMALL, "");
    CHECK(count == exact && untouched(ids, exact * sizeof *ids));
  }
  GIVES(CUA_BUFFER_TOO_SMALL, "ids", tokenize(engine, text, length, ids, exact - 1, &count, error));
  SUCCEEDS(tokenize(engine, text, length, ids, exact, &count, error));
  CHECK(count == exact && ids[exact - 1] == 248046);
  {
    uint32_t *large = fenced((exact + 10) * sizeof *ids);
    SUCCEEDS(tokenize(engine, text, length, large, exact + 10, &count, error));
    CHECK(count == exact && memcmp(large, ids, exact * sizeof *ids) == 0);
    CHECK(untouched(large + exact, 10 * sizeof *ids));
    SUCCEEDS(tokenize(engine, text, length, large, UINT64_MAX, &count, error));
    CHECK(count == exact && untouched(large + exact, 10 * sizeof *ids));
  }
  /* Letters are single tokens 32 to 57; a NUL is a character like any other. */
  SUCCEEDS(tokenize(engine, "A\0Z", 3, ids, exact, &count, error));
  CHECK(count == 3 && ids[0] == 32 && ids[2] == 57);
  free_fenced();
}

/* ---- cua_score_prompts ---------------------------------------------------------------------- */

static void test_score_arguments(cua_engine *engine, cua_engine *with_text) {
  cua_prompt prompt = make_prompt(), two[2];
  cua_score *scores = make_scores(2, sizeof(cua_score));
  cua_stats before, after;
  size_t i;
  before.struct_size = after.struct_size = sizeof before;
  CHECK(stats(engine, &before, NULL) == CUA_OK);

  SUCCEEDS(score(engine, NULL, 0, NULL, error));
  SUCCEEDS(score(engine, &prompt, 0, scores, error));
  CHECK(untouched(&scores->best, sizeof *scores - sizeof(uint32_t)));
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", score(NULL, &prompt, 1, scores, error));
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", score(NULL, NULL, 0, NULL, error));
  GIVES(CUA_INVALID_ARGUMENT, "prompts is NULL", score(engine, NULL, 1, scores, error));
  GIVES(CUA_INVALID_ARGUMENT, "scores is NULL", score(engine, &prompt, 1, NULL, error));

#define PROMPT_GIVES(want, needle) GIVES(want, needle, score(engine, &prompt, 1, scores, error))
  prompt.n_options = 0;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_options is 0");
  prompt.n_options = 27;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_options is 27");
  prompt.n_options = 0xffffffff;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_options");
  prompt = make_prompt();
  prompt.n_ids = 0;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_ids is 0");
  prompt.text = "text beside ids";
  prompt.text_length = strlen(prompt.text);
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_ids is 0");
  prompt = make_prompt();
  prompt.ids = NULL;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].ids is NULL");
  prompt.text = "text beside a number of ids";
  prompt.text_length = strlen(prompt.text);
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].ids is NULL");
  prompt.n_ids = 0;
  PROMPT_GIVES(CUA_UNSUPPORTED, "prompts[0]");
  PROMPT_GIVES(CUA_UNSUPPORTED, "tokenizer.json");
  prompt.text_length = 0;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].text_length is 0");
  prompt.text = NULL;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0] has neither ids nor text");
  prompt.text_length = 7;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0]");
  /* Lengths no array can have: nothing is read. */
  prompt = make_prompt();
  prompt.n_ids = UINT64_MAX;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_ids");
  prompt.n_ids = (uint64_t)1 << 62;
  PROMPT_GIVES(CUA_INVALID_ARGUMENT, "prompts[0].n_ids");
  prompt.n_ids = (uint64_t)1 << 60;
  PROMPT_GIVES(CUA_PROMPT_TOO_LONG, "prompts[0]");
  prompt.n_ids = 16385;
  PROMPT_GIVES(CUA_PROMPT_TOO_LONG, "prompts[0]: 16385 tokens, the limit is 16384");
  for (i = 0; i < COUNT(some_ids); ++i) {
    static const uint32_t beyond[] = {VOCABULARY, VOCABULARY + 1, 0x7fffffff, 0x80000000,
                                      0xffffffff};
    uint32_t ids[COUNT(some_ids)];
    char needle[64];
    memcpy(ids, some_ids, sizeof ids);
    ids[i] = beyond[i % COUNT(beyond)];
    sprintf(needle, "prompts[0]: ids[%u] is %u", (unsigned)i, ids[i]);
    prompt = make_prompt();
    prompt.ids = fenced_copy(ids, sizeof ids);
    PROMPT_GIVES(CUA_INVALID_ARGUMENT, needle);
  }
  prompt = make_prompt();
  for (i = 0; i < COUNT(malformed); ++i) {
    char needle[64];
    sprintf(needle, "prompts[1].text is not UTF-8 at byte %u", (unsigned)malformed[i].offset);
    two[0] = prompt;
    two[1] = prompt;
    two[1].ids = NULL;
    two[1].n_ids = 0;
    two[1].text = fenced_copy(malformed[i].bytes, malformed[i].length);
    two[1].text_length = malformed[i].length;
    GIVES(CUA_INVALID_ARGUMENT, needle, score(with_text, two, 2, scores, error));
    GIVES(CUA_INVALID_ARGUMENT, needle, score(engine, two, 2, scores, error));
  }
  two[1].text_length = (uint64_t)1 << 63;
  GIVES(CUA_INVALID_ARGUMENT, "prompts[1].text_length", score(with_text, two, 2, scores, error));
  free_fenced();

  /* The bad one is named wherever it stands, and nothing is scored. */
  for (i = 0; i < 3; ++i) {
    static const char *const needles[] = {"prompts[0].n_options", "prompts[1].n_options",
                                          "prompts[2].n_options"};
    cua_prompt three[3];
    cua_score *results = make_scores(3, sizeof(cua_score));
    three[0] = three[1] = three[2] = make_prompt();
    three[i].n_options = 0;
    GIVES(CUA_INVALID_ARGUMENT, needles[i], score(engine, three, 3, results, error));
  }
  CHECK(stats(engine, &after, NULL) == CUA_OK);
  CHECK(after.forwards == before.forwards && after.prompts == before.prompts);
  CHECK(after.tokens == before.tokens);
  free_fenced();
#undef PROMPT_GIVES
}

/* That one score is `wanted` in all that it says of the prompt. */
static int same_score(const void *at, const cua_score *wanted, uint32_t stride) {
  cua_score got;
  memcpy(&got, at, sizeof got);
  return got.struct_size == stride && got.best == wanted->best && got.n_ids == wanted->n_ids &&
         got.reserved == 0 && memcmp(got.logits, wanted->logits, sizeof got.logits) == 0 &&
         memcmp(got.probabilities, wanted->probabilities, sizeof got.probabilities) == 0;
}

static void test_score_sizes(cua_engine *engine) {
  static const uint32_t refused_prompts[] = {0, 1, 39, 65537, 0xffffffff};
  static const uint32_t refused_scores[] = {0, 1, 231, 65537, 0xffffffff};
  static const uint32_t prompt_strides[] = {40, 41, 48, 4096, 65536};
  static const uint32_t score_strides[] = {232, 233, 240, 4096, 65536};
  static const uint32_t unknown[] = {40, 41, 47};
  cua_prompt three[3];
  cua_score wanted[3];
  size_t i, j, k;
  for (i = 0; i < 3; ++i) {
    three[i] = make_prompt();
    three[i].n_options = (uint32_t)(1 + 12 * i);
    three[i].n_ids -= i;
    three[i].ids = fenced_copy(some_ids, sizeof some_ids - i * sizeof(uint32_t));
    memset(&wanted[i], i == 1 ? 0xff : 0, sizeof wanted[i]);
    wanted[i].struct_size = sizeof wanted[i];
    CHECK(score(engine, &three[i], 1, &wanted[i], NULL) == CUA_OK);
    CHECK(wanted[i].n_ids == three[i].n_ids && wanted[i].flags == 0);
    CHECK(same_score(&wanted[i], &wanted[i], sizeof(cua_score)));
  }
  for (i = 0; i < COUNT(refused_prompts); ++i) {
    cua_score *scores = make_scores(1, sizeof(cua_score));
    cua_prompt prompt = three[0];
    prompt.struct_size = refused_prompts[i];
    GIVES(CUA_INVALID_ARGUMENT, "prompts[0].struct_size", score(engine, &prompt, 1, scores, error));
    scores->struct_size = refused_scores[i];
    GIVES(CUA_INVALID_ARGUMENT, "scores[0].struct_size", score(engine, three, 1, scores, error));
    CHECK(untouched(&scores->best, sizeof *scores - sizeof(uint32_t)));
  }
  free_fenced();
  for (i = 0; i < 3; ++i) three[i].ids = fenced_copy(some_ids, three[i].n_ids * sizeof(uint32_t));
  for (i = 0; i < COUNT(prompt_strides); ++i) {
    for (j = 0; j < COUNT(score_strides); ++j) {
      const uint32_t p = prompt_strides[i], s = score_strides[j];
      /* An odd stride leaves the first element where malloc would put it, not at the fence. */
      char *prompts = make_array(three, sizeof *three, 3, p);
      char *scores = (char *)make_scores(3, s);
      if (p % 8 != 0) prompts = memcpy(fenced((3 * (size_t)p + 7) / 8 * 8), prompts, 3 * (size_t)p);
      if (s % 8 != 0) scores = memcpy(fenced((3 * (size_t)s + 7) / 8 * 8), scores, 3 * (size_t)s);
      CHECK(score(engine, (cua_prompt *)prompts, 3, (cua_score *)scores, NULL) == CUA_OK);
      for (k = 0; k < 3; ++k) {
        const char *at = scores + k * s;
        CHECK(same_score(at, &wanted[k], s));
        CHECK(untouched(at + sizeof(cua_score), s - sizeof(cua_score)));
      }
    }
  }
  free_fenced();
  for (i = 0; i < 3; ++i) three[i].ids = fenced_copy(some_ids, three[i].n_ids * sizeof(uint32_t));
  for (i = 0; i < COUNT(unknown); ++i) {
    for (k = 0; k < 3; ++k) {
      char *prompts = make_array(three, sizeof *three, 3, 48);
      char needle[64];
      prompts[48 * k + unknown[i]] = 1;
      sprintf(needle, "prompts[%u] sets a field at byte %u", (unsigned)k, unknown[i]);
      GIVES(CUA_INVALID_ARGUMENT, needle,
            score(engine, (cua_prompt *)prompts, 3, make_scores(3, sizeof(cua_score)), error));
    }
    free_fenced();
    for (j = 0; j < 3; ++j) three[j].ids = fenced_copy(some_ids, three[j].n_ids * sizeof(uint32_t));
  }
  for (k = 1; k < 3; ++k) { /* a stride is that of the whole array */
    static const uint32_t sizes[] = {0, 39, 40, 47, 65536, 232, 231};
    for (i = 0; i < COUNT(sizes); ++i) {
      char *prompts = make_array(three, sizeof *three, 3, 48);
      char *scores = (char *)make_scores(3, 240);
      char needle[64];
      memcpy(prompts + 48 * k, &sizes[i], sizeof sizes[i]);
      sprintf(needle, "prompts[%u].struct_size", (unsigned)k);
      GIVES(CUA_INVALID_ARGUMENT, needle,
            score(engine, (cua_prompt *)prompts, 3, make_scores(3, 240), error));
      memcpy(scores + 240 * k, &sizes[i], sizeof sizes[i]);
      sprintf(needle, "scores[%u].struct_size", (unsigned)k);
      GIVES(CUA_INVALID_ARGUMENT, needle,
            score(engine, make_array(three, sizeof *three, 3, 48), 3, (cua_score *)scores, error));
      free_fenced();
      for (j = 0; j < 3; ++j) {
        three[j].ids = fenced_copy(some_ids, three[j].n_ids * sizeof(uint32_t));
      }
    }
  }
  free_fenced();
}

static void test_score_values(cua_engine *engine, cua_engine *with_text) {
  cua_prompt prompt = make_prompt();
  cua_score *result = make_scores(1, sizeof(cua_score)), all;
  uint32_t n, i;
  memset(&all, 0, sizeof all);
  for (n = 26; n >= 1; --n) {
    float total = 0;
    uint32_t best = 0;
    prompt.n_options = n;
    memset(&result->best, n % 2 == 0 ? 0xff : 0, sizeof *result - sizeof(uint32_t));
    SUCCEEDS(score(engine, &prompt, 1, result, error));
    if (n == 26) all = *result;
    CHECK(memcmp(result->logits, all.logits, sizeof all.logits) == 0); /* all filled, always */
    CHECK(result->struct_size == sizeof(cua_score) && result->n_ids == COUNT(some_ids));
    CHECK(result->flags == 0 && result->reserved == 0);
    for (i = 0; i < 26; ++i) {
      if (i < n && result->logits[i] > result->logits[best]) best = i;
      if (i < n) CHECK(result->probabilities[i] > 0);
      if (i >= n) CHECK(result->probabilities[i] == 0);
      total += result->probabilities[i];
    }
    CHECK(result->best == best && total > 0.9999f && total < 1.0001f);
  }
  CHECK(result->probabilities[0] == 1.0f);

  /* Ids and the text that they come from; text where both are given is not looked at. */
  {
    const char words[] = "A, B or C? \xe2\x82\xac";
    uint32_t ids[sizeof words];
    uint64_t count = 0;
    cua_score *other = make_scores(1, sizeof(cua_score));
    prompt = make_prompt();
    CHECK(tokenize(with_text, words, sizeof words - 1, ids, sizeof words, &count, NULL) == CUA_OK);
    prompt.ids = NULL;
    prompt.n_ids = 0;
    prompt.text = fenced_copy(words, sizeof words - 1);
    prompt.text_length = sizeof words - 1;
    SUCCEEDS(score(with_text, &prompt, 1, result, error));
    CHECK(result->n_ids == count);
    prompt.ids = fenced_copy(ids, count * sizeof *ids);
    prompt.n_ids = count;
    prompt.text = "\xff not even UTF-8";
    prompt.text_length = UINT64_MAX;
    SUCCEEDS(score(with_text, &prompt, 1, other, error));
    CHECK(same_score(other, result, sizeof(cua_score)));
  }
  free_fenced();
}

/* One limit at a time: 8 tokens are fine, 9 are not, as ids and as text. */
static void test_too_long(void) {
  cua_engine_options options = make_options(text_model);
  cua_prompt two[2];
  cua_score *scores = make_scores(2, sizeof(cua_score));
  cua_engine *engine;
  options.max_prompt_tokens = 8;
  engine = open_engine(&options);
  two[0] = two[1] = make_prompt();
  two[0].n_ids = two[1].n_ids = 8;
  SUCCEEDS(score(engine, two, 2, scores, error));
  two[1].n_ids = 9;
  GIVES(CUA_PROMPT_TOO_LONG, "prompts[1]: 9 tokens, the limit is 8",
        score(engine, two, 2, scores, error));
  two[1].ids = NULL;
  two[1].n_ids = 0;
  two[1].text = "12345678";
  two[1].text_length = 8;
  SUCCEEDS(score(engine, two, 2, scores, error));
  two[1].text = "123456789";
  two[1].text_length = 9;
  GIVES(CUA_PROMPT_TOO_LONG, "prompts[1]: 9 tokens, the limit is 8",
        score(engine, two, 2, scores, error));
  two[1].text_length = 8;
  SUCCEEDS(score(engine, two, 2, scores, error)); /* the engine is as good as before */
  destroy(engine);
  free_fenced();
}

/* ---- cua_set_graph_mode, cua_engine_stats --------------------------------------------------- */

static void test_graph_mode(cua_engine *engine) {
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", set_graph_mode(NULL, CUA_GRAPH_OFF, error));
  GIVES(CUA_INVALID_ARGUMENT, "mode is unknown", set_graph_mode(engine, 3, error));
  GIVES(CUA_INVALID_ARGUMENT, "mode is unknown", set_graph_mode(engine, 0xffffffff, error));
  SUCCEEDS(set_graph_mode(engine, CUA_GRAPH_OFF, error));
  if (is_cpu) {
    GIVES(CUA_UNSUPPORTED, "mode", set_graph_mode(engine, CUA_GRAPH_EXACT, error));
    GIVES(CUA_UNSUPPORTED, "mode", set_graph_mode(engine, CUA_GRAPH_BUCKET, error));
  }
  free_fenced();
}

static void test_stats(cua_engine *engine) {
  static const uint32_t refused[] = {0, 1, 79, 65537, 0xffffffff};
  static const uint32_t accepted[] = {80, 84, 88, 4096, 65536};
  cua_stats *one = fenced(sizeof *one), before;
  cua_prompt two[2];
  size_t i;
  one->struct_size = sizeof *one;
  GIVES(CUA_INVALID_ARGUMENT, "engine is NULL", stats(NULL, one, error));
  GIVES(CUA_INVALID_ARGUMENT, "stats is NULL", stats(engine, NULL, error));
  for (i = 0; i < COUNT(refused); ++i) {
    one->struct_size = refused[i];
    GIVES(CUA_INVALID_ARGUMENT, "stats.struct_size", stats(engine, one, error));
    CHECK(untouched(&one->reserved, sizeof *one - sizeof(uint32_t)));
  }
  one->struct_size = sizeof *one;
  SUCCEEDS(stats(engine, one, error));
  before = *one;
  CHECK(before.struct_size == sizeof before && before.reserved == 0);
  for (i = 0; i < COUNT(accepted); ++i) {
    const uint32_t size = accepted[i];
    cua_stats *large = fenced((size + 7) / 8 * 8);
    large->struct_size = size;
    SUCCEEDS(stats(engine, large, error));
    CHECK(large->struct_size == size);
    CHECK(memcmp(&large->reserved, &before.reserved, sizeof before - sizeof(uint32_t)) == 0);
    CHECK(untouched(large + 1, size - sizeof *large));
  }
  two[0] = two[1] = make_prompt();
  two[1].n_ids = 5;
  CHECK(score(engine, two, 2, make_scores(2, sizeof(cua_score)), NULL) == CUA_OK);
  SUCCEEDS(stats(engine, one, error));
  CHECK(one->forwards == before.forwards + 1 && one->prompts == before.prompts + 2);
  CHECK(one->tokens == before.tokens + COUNT(some_ids) + 5 && one->scratch_bytes > 0);
  if (is_cpu) {
    CHECK(one->captures == 0 && one->replays == 0 && one->evictions == 0);
    CHECK(one->fallbacks == 0 && one->device_bytes == 0);
  }
  free_fenced();
}

/* ---- nothing stays behind ------------------------------------------------------------------- */

/* Resident, without what free() keeps, and without files: the system drops those as it likes. */
static long anonymous_pages(void) {
  long size = 0, resident = 0, shared = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  malloc_trim(0);
  if (file == NULL || fscanf(file, "%ld %ld %ld", &size, &resident, &shared) != 3) exit(1);
  fclose(file);
  return resident - shared;
}

static long entries(const char *folder) {
  long n = 0;
  DIR *dir = opendir(folder);
  if (dir == NULL) return -1;
  while (readdir(dir) != NULL) ++n;
  closedir(dir);
  return n;
}

static int is_mapped(const char *folder) {
  char line[8192];
  int found = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strstr(line, folder) != NULL) found = 1;
  }
  if (file != NULL) fclose(file);
  return found;
}

static void test_lifetime(void) {
  const long threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
  long early = 0;
  int i;
  for (i = 0; i < 50; ++i) {
    cua_engine_options options = make_options(ids_model), bad = make_options(unmarked_model);
    cua_prompt prompt = make_prompt();
    cua_score *result = make_scores(1, sizeof(cua_score));
    cua_engine *engine, *none = NULL;
    options.threads = 2;
    engine = open_engine(&options);
    CHECK(score(engine, &prompt, 1, result, NULL) == CUA_OK);
    CHECK(is_mapped(ids_model) == is_cpu);
    destroy(engine);
    CHECK(create(&bad, &none, NULL) == CUA_BAD_MODEL);
    if (is_cpu) {
      bad = options;
      bad.graph_mode = CUA_GRAPH_EXACT; /* refused after the model has been opened */
      CHECK(create(&bad, &none, NULL) == CUA_UNSUPPORTED);
    }
    free_fenced();
    if (i == 9) early = anonymous_pages();
  }
  CHECK(!is_mapped(ids_model));
  CHECK(entries("/proc/self/fd") == files);
  if (is_cpu) CHECK(entries("/proc/self/task") == threads);
#ifdef __SANITIZE_ADDRESS__ /* keeps freed memory for a while, and finds leaks by itself */
  (void)early;
#else
  if (is_cpu) CHECK(anonymous_pages() - early < 64);
#endif
}

/* Engines share nothing. */
static void test_two_engines(void) {
  cua_engine_options options = make_options(ids_model);
  cua_engine *first = open_engine(&options), *second = open_engine(&options);
  cua_prompt prompt = make_prompt();
  cua_score *a = make_scores(1, sizeof(cua_score)), *b = make_scores(1, sizeof(cua_score));
  cua_stats counters;
  CHECK(first != second);
  CHECK(score(first, &prompt, 1, a, NULL) == CUA_OK);
  CHECK(score(second, &prompt, 1, b, NULL) == CUA_OK);
  CHECK(same_score(b, a, sizeof(cua_score)));
  destroy(first);
  CHECK(score(second, &prompt, 1, b, NULL) == CUA_OK);
  CHECK(same_score(b, a, sizeof(cua_score)));
  counters.struct_size = sizeof counters;
  CHECK(stats(second, &counters, NULL) == CUA_OK && counters.forwards == 2);
  destroy(second);
  free_fenced();
}

int main(int argc, char **argv) {
  cua_engine_options options;
  cua_engine *with_ids, *with_text;
  void *library;
  if (argc != 5) {
    fprintf(stderr, "usage: contract LIBRARY IDS_MODEL TEXT_MODEL UNMARKED_MODEL\n");
    return 2;
  }
  ids_model = argv[2];
  text_model = argv[3];
  unmarked_model = argv[4];
  library = open_library(argv[1], RTLD_NOW | RTLD_LOCAL);
  is_cpu = strstr(build_info(), "\"backend\":\"cpu\"") != NULL;

  test_versions();
  test_create();
  test_create_sizes();
  test_long_message();
  options = make_options(ids_model);
  with_ids = open_engine(&options);
  options = make_options(text_model);
  with_text = open_engine(&options);
  free_fenced();
  test_describe(with_ids, "\"tokenizer\":false");
  test_describe(with_text, "\"tokenizer\":true");
  test_tokenize(with_text, with_ids);
  test_score_arguments(with_ids, with_text);
  test_score_sizes(with_ids);
  test_score_values(with_ids, with_text);
  test_graph_mode(with_ids);
  test_stats(with_ids);
  destroy(with_text);
  destroy(with_ids);
  test_too_long();
  test_two_engines();
  test_lifetime();

  /* Closed and opened again, the library works. */
  CHECK(dlclose(library) == 0);
  library = open_library(argv[1], RTLD_NOW | RTLD_LOCAL);
  test_two_engines();
  CHECK(dlclose(library) == 0);
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
