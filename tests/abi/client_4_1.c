/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of a coming version 4.1: built against a header with a field more at the end of each
 * struct, and a function more (later_header.cmake). docs/abi.md tells what it may expect of which
 * library.
 *   client_4_1 strict LIBRARY          refuses a library of 4.0
 *   client_4_1 either LIBRARY MODEL    takes one, and does without what is new
 * Ends with 0 if all is as documented, with 3 if it refuses the library.
 */
#include "open_library.h"

static int is_zero(uint64_t value) { return value == 0; }

int main(int argc, char **argv) {
  const uint64_t untouched = 0x5a5a5a5a5a5a5a5a;
  int32_t (*later)(cua_engine *, cua_error *);
  cua_engine_options options;
  cua_engine *engine = NULL;
  cua_prompt prompt;
  cua_score result;
  cua_stats counters;
  cua_error error;
  uint32_t version;
  int knows, strict;
  void *library;
  REQUIRE(argc >= 3);
  strict = strcmp(argv[1], "strict") == 0;
  REQUIRE(strict || argc == 4);
  library = open_library(argv[2], RTLD_NOW | RTLD_LOCAL);
  version = abi_version();
  knows = (version & 0xffff) >= CUA_ABI_MINOR;
  REQUIRE(version >> 16 == CUA_ABI_MAJOR && CUA_ABI_MINOR == 1);
  if (strict && !knows) {
    fprintf(stderr,
            "refusing %s: its ABI %u.%u is older than the %u.%u that this program needs; update "
            "the library\n",
            argv[2], version >> 16, version & 0xffff, CUA_ABI_MAJOR, CUA_ABI_MINOR);
    return 3;
  }
  if (strict) { /* what is new may be used without a look */
    printf("4.1 with %u.%u\n", version >> 16, version & 0xffff);
    return 0;
  }

  /* A new function is looked for, and is not there. */
  *(void **)&later = dlsym(library, "cua_later_function");
  REQUIRE((later != NULL) == knows);

  /* A new input field left at zero is nothing; one that is set is refused, never ignored. */
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.model_dir = argv[3];
  options.model_dir_length = strlen(argv[3]);
  error.struct_size = sizeof error;
  options.later = 1;
  if (knows) {
    REQUIRE(create(&options, &engine, &error) == CUA_OK);
  } else {
    REQUIRE(create(&options, &engine, &error) == CUA_INVALID_ARGUMENT && engine == NULL);
    REQUIRE(strstr(error.message, "options sets a field at byte 96 ") != NULL);
    REQUIRE(strstr(error.message, "ABI 4.0") != NULL && strstr(error.message, "newer library"));
    options.later = 0;
    REQUIRE(create(&options, &engine, &error) == CUA_OK);
  }

  memset(&prompt, 0, sizeof prompt);
  prompt.struct_size = sizeof prompt;
  prompt.n_options = 2;
  prompt.text = "A or B?";
  prompt.text_length = 7;
  result.struct_size = sizeof result;
  result.later = untouched;
  REQUIRE(score(engine, &prompt, 1, &result, &error) == CUA_OK);
  REQUIRE(result.n_ids == 4 && result.struct_size == sizeof result);
  /* A new output field keeps what the caller left there: set it before the call. */
  REQUIRE(knows ? is_zero(result.later) : result.later == untouched);
  prompt.later = 1;
  if (knows) {
    REQUIRE(score(engine, &prompt, 1, &result, &error) == CUA_OK);
  } else {
    REQUIRE(score(engine, &prompt, 1, &result, &error) == CUA_INVALID_ARGUMENT);
    REQUIRE(strstr(error.message, "prompts[0] sets a field at byte 40 ") != NULL);
  }
  counters.struct_size = sizeof counters;
  counters.later = untouched;
  REQUIRE(stats(engine, &counters, &error) == CUA_OK && counters.prompts == (knows ? 2u : 1u));
  REQUIRE(knows ? is_zero(counters.later) : counters.later == untouched);
  if (later != NULL) REQUIRE(later(engine, &error) == CUA_OK);
  destroy(engine);
  printf("4.1 with %u.%u\n", version >> 16, version & 0xffff);
  return 0;
}
