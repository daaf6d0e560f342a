/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's functions through dlopen, for the C programs of this folder.
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

static uint32_t (*abi_version)(void);
static const char *(*build_info)(void);
static int32_t (*create)(const cua_engine_options *, cua_engine **, cua_error *);
static void (*destroy)(cua_engine *);
static int32_t (*describe)(const cua_engine *, char *, uint64_t, uint64_t *, cua_error *);
static int32_t (*tokenize)(const cua_engine *, const char *, uint64_t, uint32_t *, uint64_t,
                           uint64_t *, cua_error *);
static int32_t (*score)(cua_engine *, const cua_prompt *, uint32_t, cua_score *, cua_error *);
static int32_t (*set_graph_mode)(cua_engine *, uint32_t, cua_error *);
static int32_t (*stats)(const cua_engine *, cua_stats *, cua_error *);

static void *load(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return symbol;
}

/* flags: of dlopen. */
static void *open_library(const char *path, int flags) {
  void *library = dlopen(path, flags);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  *(void **)&abi_version = load(library, "cua_abi_version");
  *(void **)&build_info = load(library, "cua_build_info");
  *(void **)&create = load(library, "cua_engine_create");
  *(void **)&destroy = load(library, "cua_engine_destroy");
  *(void **)&describe = load(library, "cua_engine_describe");
  *(void **)&tokenize = load(library, "cua_tokenize");
  *(void **)&score = load(library, "cua_score_prompts");
  *(void **)&set_graph_mode = load(library, "cua_set_graph_mode");
  *(void **)&stats = load(library, "cua_engine_stats");
  return library;
}
