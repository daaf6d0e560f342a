/* SPDX-License-Identifier: Apache-2.0
 *
 * libcua opened with dlopen: one struct with its functions, named as in cua.h. C99; include it
 * where it is needed, link -ldl where libc is older than 2.34.
 */
#ifndef CUA_LIBRARY_H
#define CUA_LIBRARY_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cua.h"

typedef struct {
  uint32_t (*abi_version)(void);
  const char *(*build_info)(void);
  int32_t (*engine_create)(const cua_engine_options *, cua_engine **, cua_error *);
  void (*engine_destroy)(cua_engine *);
  int32_t (*engine_describe)(const cua_engine *, char *, uint64_t, uint64_t *, cua_error *);
  int32_t (*tokenize)(const cua_engine *, const char *, uint64_t, uint32_t *, uint64_t, uint64_t *,
                      cua_error *);
  int32_t (*score_prompts)(cua_engine *, const cua_prompt *, uint32_t, cua_score *, cua_error *);
  int32_t (*set_graph_mode)(cua_engine *, uint32_t, cua_error *);
  int32_t (*engine_stats)(const cua_engine *, cua_stats *, cua_error *);
} cua_library;

/* Opens the library at `path`, which stays open until the process ends (the CUDA runtime cannot be
 * unloaded), and looks its functions up.
 * Errors, as the library's own: ABI_MISMATCH for another version, INVALID_ARGUMENT for what is not
 * libcua or cannot be loaded. */
static int32_t cua_library_open(const char *path, cua_library *library, cua_error *error) {
  const struct {
    const char *name;
    void *function; /* the pointer's place in *library */
  } symbols[] = {
      {"cua_abi_version", &library->abi_version}, /* first: another major may lack the others */
      {"cua_build_info", &library->build_info},
      {"cua_engine_create", &library->engine_create},
      {"cua_engine_destroy", &library->engine_destroy},
      {"cua_engine_describe", &library->engine_describe},
      {"cua_tokenize", &library->tokenize},
      {"cua_score_prompts", &library->score_prompts},
      {"cua_set_graph_mode", &library->set_graph_mode},
      {"cua_engine_stats", &library->engine_stats},
  };
  void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  size_t i;
  error->message[0] = '\0';
  if (handle == NULL) {
    snprintf(error->message, sizeof error->message, "%s", dlerror());
    return error->code = CUA_INVALID_ARGUMENT;
  }
  for (i = 0; i < sizeof symbols / sizeof *symbols; ++i) {
    void *const symbol = dlsym(handle, symbols[i].name);
    if (symbol == NULL) {
      snprintf(error->message, sizeof error->message, "refusing %s: it has no %s; is it libcua?",
               path, symbols[i].name);
      dlclose(handle);
      return error->code = CUA_INVALID_ARGUMENT;
    }
    memcpy(symbols[i].function, &symbol, sizeof symbol);
    if (i == 0) {
      const uint32_t version = library->abi_version();
      const unsigned major = version >> 16, minor = version & 0xffff;
      if (major != CUA_ABI_MAJOR) {
        snprintf(error->message, sizeof error->message,
                 "refusing %s: its ABI is %u.%u, this program needs %u.%u; use a library and a "
                 "program of the same major version",
                 path, major, minor, CUA_ABI_MAJOR, CUA_ABI_MINOR);
      } else if (minor + 1 < CUA_ABI_MINOR + 1) { /* + 1: no compiler warns of minor < 0 */
        snprintf(error->message, sizeof error->message,
                 "refusing %s: its ABI %u.%u is older than the %u.%u that this program needs; "
                 "update the library",
                 path, major, minor, CUA_ABI_MAJOR, CUA_ABI_MINOR);
      }
      if (error->message[0] != '\0') {
        dlclose(handle);
        return error->code = CUA_ABI_MISMATCH;
      }
    }
  }
  return error->code = CUA_OK;
}

#endif /* CUA_LIBRARY_H */
