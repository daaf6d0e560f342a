/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores a prompt, as text, as ids and in a batch, shows the errors that a program must expect, and
 * checks that threads and many engines do no harm. The same in every language of abi/examples.
 *   score LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]
 * IDS_MODEL: a model folder without a tokenizer. OTHER_LIBRARY: one of another ABI version.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cua_library.h"

enum { MAX_TOKENS = 4096, N_OPTIONS = 3, N_THREADS = 8, N_ROUNDS = 5, N_ENGINES = 50 };

static cua_library cua;

static void fail(const char *what, const cua_error *error) {
  fprintf(stderr, "%s: error %" PRId32 ": %s\n", what, error->code, error->message);
  exit(1);
}

static void *allocate(size_t size) {
  void *const memory = malloc(size);
  if (memory == NULL) {
    fputs("out of memory\n", stderr);
    exit(1);
  }
  return memory;
}

static int32_t open_engine(const char *model, cua_engine **engine, cua_error *error) {
  cua_engine_options options = {.struct_size = sizeof options};
  options.model_dir = model;
  options.model_dir_length = strlen(model);
  options.max_prompt_tokens = MAX_TOKENS;
  return cua.engine_create(&options, engine, error);
}

static cua_prompt of_text(const char *text, uint32_t n_options) {
  cua_prompt prompt = {.struct_size = sizeof prompt, .n_options = n_options};
  prompt.text = text;
  prompt.text_length = strlen(text);
  return prompt;
}

static cua_prompt of_ids(const uint32_t *ids, uint64_t n_ids, uint32_t n_options) {
  cua_prompt prompt = {.struct_size = sizeof prompt, .n_options = n_options};
  prompt.ids = ids;
  prompt.n_ids = n_ids;
  return prompt;
}

static int32_t score_one(cua_engine *engine, const cua_prompt *prompt, cua_score *score,
                         cua_error *error) {
  memset(score, 0, sizeof *score);
  score->struct_size = sizeof *score;
  return cua.score_prompts(engine, prompt, 1, score, error);
}

static void print_score(const char *name, const cua_score *score, uint32_t n_options) {
  uint32_t i;
  printf("%s: %c, %" PRIu64 " tokens, flags %" PRIu32 ",", name, (int)('A' + score->best),
         score->n_ids, score->flags);
  for (i = 0; i < n_options; ++i) printf(" %c %.6f", (int)('A' + i), score->probabilities[i]);
  putchar('\n');
}

static void print_error(const char *name, int32_t code, const cua_error *error) {
  if (code == CUA_OK) {
    printf("%s: no error\n", name);
  } else {
    printf("%s: error %" PRId32 ": %s\n", name, code, error->message);
  }
}

static void print_description(cua_engine *engine) {
  cua_error error = {.struct_size = sizeof error};
  uint64_t length = 0;
  char *json;
  if (cua.engine_describe(engine, NULL, 0, &length, &error) != CUA_BUFFER_TOO_SMALL) {
    fail("describe", &error);
  }
  json = allocate(length);
  if (cua.engine_describe(engine, json, length, &length, &error) != CUA_OK)
    fail("describe", &error);
  printf("engine %.*s\n", (int)length, json);
  free(json);
}

/* The ids of the text, for the caller to free. */
static uint32_t *tokens_of(cua_engine *engine, const char *text, uint64_t *count) {
  cua_error error = {.struct_size = sizeof error};
  uint32_t *ids;
  const int32_t code = cua.tokenize(engine, text, strlen(text), NULL, 0, count, &error);
  if (code != CUA_BUFFER_TOO_SMALL) fail("tokenize", &error);
  ids = allocate(*count * sizeof *ids);
  if (cua.tokenize(engine, text, strlen(text), ids, *count, count, &error) != CUA_OK) {
    fail("tokenize", &error);
  }
  return ids;
}

static void print_answers(cua_engine *engine, const char *text, const uint32_t *ids,
                          uint64_t n_ids) {
  cua_error error = {.struct_size = sizeof error};
  const cua_prompt prompts[] = {of_text(text, N_OPTIONS), of_ids(ids, n_ids, N_OPTIONS),
                                of_text("A or B?", 2)};
  cua_score scores[3] = {{.struct_size = sizeof *scores},
                         {.struct_size = sizeof *scores},
                         {.struct_size = sizeof *scores}};
  cua_stats stats = {.struct_size = sizeof stats};
  int32_t code;
  int i;
  if (score_one(engine, &prompts[0], &scores[0], &error) != CUA_OK) fail("text", &error);
  print_score("text", &scores[0], N_OPTIONS);
  if (score_one(engine, &prompts[1], &scores[1], &error) != CUA_OK) fail("ids", &error);
  print_score("ids", &scores[1], N_OPTIONS);
  if (cua.score_prompts(engine, prompts, 3, scores, &error) != CUA_OK) fail("batch", &error);
  for (i = 0; i < 3; ++i) print_score("batch", &scores[i], prompts[i].n_options);

  code = cua.set_graph_mode(engine, CUA_GRAPH_EXACT, &error);
  if (code == CUA_OK) {
    puts("graphs: on");
  } else if (code == CUA_UNSUPPORTED) { /* the CPU library: the answers are the same without */
    print_error("graphs", code, &error);
  } else {
    fail("graphs", &error);
  }
  for (i = 0; i < 3; ++i) {
    if (score_one(engine, &prompts[0], &scores[0], &error) != CUA_OK) fail("again", &error);
    print_score("again", &scores[0], N_OPTIONS);
  }
  if (cua.engine_stats(engine, &stats, &error) != CUA_OK) fail("statistics", &error);
  printf("statistics: forwards %" PRIu64 ", prompts %" PRIu64 ", tokens %" PRIu64
         ", captures %" PRIu64 ", replays %" PRIu64 ", evictions %" PRIu64 ", fallbacks %" PRIu64
         ", scratch_bytes %" PRIu64 ", device_bytes %" PRIu64 "\n",
         stats.forwards, stats.prompts, stats.tokens, stats.captures, stats.replays,
         stats.evictions, stats.fallbacks, stats.scratch_bytes, stats.device_bytes);
}

static void print_errors(const char *path, const char *model, cua_engine *engine,
                         const char *text) {
  cua_error error = {.struct_size = sizeof error};
  cua_library other;
  cua_engine *none = NULL;
  cua_prompt prompt;
  cua_score score;
  uint64_t count = 0;
  char name[4096];
  uint32_t *const ids = allocate((MAX_TOKENS + 1) * sizeof *ids);
  int32_t code;
  int i;

  snprintf(name, sizeof name, "%s.absent", path);
  code = cua_library_open(name, &other, &error);
  printf("no library: %s\n", code == CUA_OK ? "no error" : error.message);
  snprintf(name, sizeof name, "%s/absent", model);
  print_error("no model", open_engine(name, &none, &error), &error);

  for (i = 0; i <= MAX_TOKENS; ++i) ids[i] = 1;
  prompt = of_ids(ids, MAX_TOKENS + 1, N_OPTIONS);
  print_error("too long", score_one(engine, &prompt, &score, &error), &error);
  free(ids);
  prompt = of_text(text, 0);
  print_error("0 options", score_one(engine, &prompt, &score, &error), &error);
  prompt = of_text(text, 27);
  print_error("27 options", score_one(engine, &prompt, &score, &error), &error);
  code = cua.tokenize(engine, text, strlen(text), NULL, 0, &count, &error);
  print_error("short buffer", code, &error);
  printf("short buffer: %" PRIu64 " needed\n", count);
}

/* What a thread scores, and whether its answers were those of `expected`, bit for bit. */
typedef struct {
  cua_engine *engine;
  cua_prompt prompt;
  const cua_score *expected;
  int equal;
} thread_work;

static void *score_in_thread(void *argument) {
  thread_work *const work = argument;
  int i;
  work->equal = 1;
  for (i = 0; i < N_ROUNDS; ++i) {
    cua_error error = {.struct_size = sizeof error};
    cua_score score;
    if (score_one(work->engine, &work->prompt, &score, &error) != CUA_OK) fail("threads", &error);
    if (memcmp(score.probabilities, work->expected->probabilities, sizeof score.probabilities) !=
        0) {
      work->equal = 0;
    }
  }
  return NULL;
}

static void print_threads(cua_engine *engine, const char *text) {
  cua_error error = {.struct_size = sizeof error};
  const cua_prompt prompt = of_text(text, N_OPTIONS);
  cua_score expected;
  pthread_t threads[N_THREADS];
  thread_work works[N_THREADS];
  int i, equal = 1;
  if (score_one(engine, &prompt, &expected, &error) != CUA_OK) fail("threads", &error);
  for (i = 0; i < N_THREADS; ++i) {
    works[i] = (thread_work){engine, prompt, &expected, 0};
    if (pthread_create(&threads[i], NULL, score_in_thread, &works[i]) != 0) {
      fputs("no more threads\n", stderr);
      exit(1);
    }
  }
  for (i = 0; i < N_THREADS; ++i) {
    pthread_join(threads[i], NULL);
    equal = equal && works[i].equal;
  }
  printf("threads: %d, %s answers\n", N_THREADS, equal ? "equal" : "DIFFERENT");
}

static long resident_kilobytes(void) {
  long pages = -1;
  FILE *const file = fopen("/proc/self/statm", "r");
  if (file == NULL) return -1;
  if (fscanf(file, "%*s %ld", &pages) != 1) pages = -1;
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void print_memory(const char *model) {
  cua_error error = {.struct_size = sizeof error};
  const uint32_t ids[] = {1, 2, 3};
  const cua_prompt prompt = of_ids(ids, 3, N_OPTIONS);
  long early = 0;
  int i;
  for (i = 1; i <= N_ENGINES; ++i) {
    cua_engine *engine;
    cua_score score;
    if (open_engine(model, &engine, &error) != CUA_OK) fail("memory", &error);
    if (score_one(engine, &prompt, &score, &error) != CUA_OK) fail("memory", &error);
    cua.engine_destroy(engine);
    if (i == N_ENGINES / 5) early = resident_kilobytes();
  }
  printf("memory: %ld kB after %d engines, %ld kB after %d\n", early, N_ENGINES / 5,
         resident_kilobytes(), N_ENGINES);
}

/* A file's bytes as a string, for the caller to free. */
static char *read_file(const char *path) {
  size_t length = 0, capacity = 4096, n;
  char *text = allocate(capacity);
  FILE *const file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  while ((n = fread(text + length, 1, capacity - length - 1, file)) > 0) {
    length += n;
    if (length == capacity - 1) {
      char *const larger = allocate(capacity *= 2);
      memcpy(larger, text, length);
      free(text);
      text = larger;
    }
  }
  fclose(file);
  text[length] = '\0';
  return text;
}

int main(int argc, char **argv) {
  cua_error error = {.struct_size = sizeof error};
  cua_engine *engine = NULL;
  uint64_t n_ids = 0;
  uint32_t *ids;
  char *text;
  if (argc != 4 && argc != 6) {
    fprintf(stderr, "usage: %s LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]\n", argv[0]);
    return 2;
  }
  if (cua_library_open(argv[1], &cua, &error) != CUA_OK) fail("library", &error);
  printf("abi %" PRIu32 ".%" PRIu32 "\n", cua.abi_version() >> 16, cua.abi_version() & 0xffff);
  printf("build %s\n", cua.build_info());
  if (open_engine(argv[2], &engine, &error) != CUA_OK) fail("model", &error);
  print_description(engine);

  text = read_file(argv[3]);
  ids = tokens_of(engine, text, &n_ids);
  printf("prompt: %" PRIu64 " tokens, %" PRIu32 " to %" PRIu32 "\n", n_ids, ids[0], ids[n_ids - 1]);
  print_answers(engine, text, ids, n_ids);
  print_errors(argv[1], argv[2], engine, text);
  print_threads(engine, text);
  cua.engine_destroy(engine);

  if (argc == 6) {
    const cua_prompt prompt = of_text(text, N_OPTIONS);
    cua_library other;
    cua_score score;
    if (open_engine(argv[4], &engine, &error) != CUA_OK) fail("model", &error);
    print_error("no tokenizer", score_one(engine, &prompt, &score, &error), &error);
    cua.engine_destroy(engine);
    print_error("other version", cua_library_open(argv[5], &other, &error), &error);
    print_memory(argv[4]);
  }
  free(ids);
  free(text);
  return 0;
}
