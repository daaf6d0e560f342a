/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of ABI 4.0, as one was written then: built against abi/4.0/cua.h, run with the current
 * library and with later ones. Never changed; it includes nothing that may.
 *   client_4_0 LIBRARY MODEL
 * Ends with 0 if all is as 4.0 promised, with 3 if it refuses the library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cua.h"

#define REQUIRE(condition)                                            \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* An output of 4.0 and the bytes behind it, which no library may write. */
#define OUTPUT(type)          \
  struct {                    \
    type it;                  \
    unsigned char beyond[64]; \
  }

#define PREPARE(output)                            \
  do {                                             \
    memset(&(output), 0xa5, sizeof(output));       \
    (output).it.struct_size = sizeof((output).it); \
  } while (0)

static void check_beyond(const unsigned char *beyond) {
  int i;
  for (i = 0; i < 64; ++i) REQUIRE(beyond[i] == 0xa5);
}

static void *load(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  REQUIRE(symbol != NULL);
  return symbol;
}

int main(int argc, char **argv) {
  static const char text[] = "A or B?", other[] = "B or A?";
  uint32_t (*abi_version)(void);
  const char *(*build_info)(void);
  int32_t (*create)(const cua_engine_options *, cua_engine **, cua_error *);
  void (*destroy)(cua_engine *);
  int32_t (*describe)(const cua_engine *, char *, uint64_t, uint64_t *, cua_error *);
  int32_t (*tokenize)(const cua_engine *, const char *, uint64_t, uint32_t *, uint64_t, uint64_t *,
                      cua_error *);
  int32_t (*score)(cua_engine *, const cua_prompt *, uint32_t, cua_score *, cua_error *);
  int32_t (*set_graph_mode)(cua_engine *, uint32_t, cua_error *);
  int32_t (*stats)(const cua_engine *, cua_stats *, cua_error *);
  OUTPUT(cua_error) error;
  OUTPUT(cua_stats) counters;
  OUTPUT(cua_score) by_ids;
  cua_score batch[2];
  cua_prompt prompts[2];
  cua_engine_options options;
  cua_engine *engine = NULL;
  uint32_t ids[16], version;
  uint64_t count = 0, needed = 0;
  char json[4096];
  void *library;
  int size;
  if (argc != 3) return 2;
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void **)&abi_version = load(library, "cua_abi_version");
  version = abi_version();
  if (version >> 16 != CUA_ABI_MAJOR) { /* no minor is smaller than 0 */
    fprintf(stderr,
            "refusing %s: its ABI is %u.%u, this program needs %u.%u; use a library and a "
            "program of the same major version\n",
            argv[1], version >> 16, version & 0xffff, CUA_ABI_MAJOR, CUA_ABI_MINOR);
    return 3;
  }
  *(void **)&build_info = load(library, "cua_build_info");
  *(void **)&create = load(library, "cua_engine_create");
  *(void **)&destroy = load(library, "cua_engine_destroy");
  *(void **)&describe = load(library, "cua_engine_describe");
  *(void **)&tokenize = load(library, "cua_tokenize");
  *(void **)&score = load(library, "cua_score_prompts");
  *(void **)&set_graph_mode = load(library, "cua_set_graph_mode");
  *(void **)&stats = load(library, "cua_engine_stats");
  REQUIRE(strstr(build_info(), "\"backend\"") != NULL);

  /* The smallest options of 4.0, and its largest. */
  for (size = 56; size <= 96; size += 40) {
    destroy(engine);
    memset(&options, 0, sizeof options);
    options.struct_size = (uint32_t)size;
    options.model_dir = argv[2];
    options.model_dir_length = strlen(argv[2]);
    PREPARE(error);
    REQUIRE(create(&options, &engine, &error.it) == CUA_OK && engine != NULL);
    REQUIRE(error.it.code == CUA_OK && error.it.message[0] == '\0');
    check_beyond(error.beyond);
  }
  REQUIRE(describe(engine, NULL, 0, &needed, NULL) == CUA_BUFFER_TOO_SMALL);
  REQUIRE(needed < sizeof json);
  REQUIRE(describe(engine, json, needed, &needed, NULL) == CUA_OK);
  json[needed] = '\0';
  REQUIRE(strstr(json, "\"tokenizer\":true") != NULL && strstr(json, "\"vocabulary\":") != NULL);

  REQUIRE(tokenize(engine, text, sizeof text - 1, ids, 16, &count, NULL) == CUA_OK && count > 0);
  memset(prompts, 0, sizeof prompts);
  prompts[0].struct_size = prompts[1].struct_size = sizeof *prompts;
  prompts[0].n_options = prompts[1].n_options = 2;
  prompts[0].text = text;
  prompts[0].text_length = sizeof text - 1;
  prompts[1].text = other;
  prompts[1].text_length = sizeof other - 1;
  memset(batch, 0xa5, sizeof batch);
  batch[0].struct_size = batch[1].struct_size = sizeof *batch;
  REQUIRE(score(engine, prompts, 2, batch, NULL) == CUA_OK);
  REQUIRE((batch[0].flags & CUA_SCORE_BATCHED) != 0 && batch[1].struct_size == sizeof *batch);

  prompts[0].text = NULL;
  prompts[0].ids = ids;
  prompts[0].n_ids = count;
  PREPARE(by_ids);
  REQUIRE(score(engine, prompts, 1, &by_ids.it, NULL) == CUA_OK);
  check_beyond(by_ids.beyond);
  REQUIRE(by_ids.it.n_ids == count && by_ids.it.reserved == 0);
  REQUIRE(memcmp(by_ids.it.logits, batch[0].logits, sizeof batch[0].logits) == 0);
  REQUIRE(by_ids.it.probabilities[0] > 0 && by_ids.it.probabilities[2] == 0);
  REQUIRE(by_ids.it.best == (by_ids.it.logits[1] > by_ids.it.logits[0]));

  prompts[0].n_options = CUA_MAX_OPTIONS + 1;
  PREPARE(error);
  REQUIRE(score(engine, prompts, 1, batch, &error.it) == CUA_INVALID_ARGUMENT);
  REQUIRE(error.it.code == CUA_INVALID_ARGUMENT);
  REQUIRE(strstr(error.it.message, "n_options") != NULL);
  check_beyond(error.beyond);

  REQUIRE(set_graph_mode(engine, CUA_GRAPH_OFF, NULL) == CUA_OK);
  PREPARE(counters);
  REQUIRE(stats(engine, &counters.it, NULL) == CUA_OK);
  check_beyond(counters.beyond);
  REQUIRE(counters.it.prompts == 3 && counters.it.forwards == 2 && counters.it.reserved == 0);
  destroy(engine);
  printf("%u.%u: A %.6f\n", version >> 16, version & 0xffff, (double)by_ids.it.probabilities[0]);
  return 0;
}
