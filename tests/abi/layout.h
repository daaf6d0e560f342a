/* SPDX-License-Identifier: Apache-2.0
 *
 * ABI 4.0 as it was recorded: sizes, offsets, values and signatures. Included after
 * CUA_LAYOUT(name, condition) has been defined as the language's static assertion. A line here
 * never changes; a later version adds its own.
 */
#include <stddef.h>

#define CUA_FIELD(type, field, offset, size) \
  CUA_LAYOUT(type##_##field,                 \
             offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (size))
/* Later minor versions add fields at the end. */
#define CUA_SIZE(type, size) \
  CUA_LAYOUT(type##_size, sizeof(type) == (size) || (CUA_ABI_MINOR > 0 && sizeof(type) > (size)))

CUA_LAYOUT(pointers, sizeof(void *) == 8 && sizeof(cua_log_fn) == 8)

CUA_SIZE(cua_error, 1032)
CUA_FIELD(cua_error, struct_size, 0, 4)
CUA_FIELD(cua_error, code, 4, 4)
CUA_FIELD(cua_error, message, 8, 1024)

CUA_SIZE(cua_engine_options, 96)
CUA_FIELD(cua_engine_options, struct_size, 0, 4)
CUA_FIELD(cua_engine_options, device, 4, 4)
CUA_FIELD(cua_engine_options, model_dir, 8, 8)
CUA_FIELD(cua_engine_options, model_dir_length, 16, 8)
CUA_FIELD(cua_engine_options, max_prompt_tokens, 24, 4)
CUA_FIELD(cua_engine_options, max_batch_tokens, 28, 4)
CUA_FIELD(cua_engine_options, graph_mode, 32, 4)
CUA_FIELD(cua_engine_options, graph_capacity, 36, 4)
CUA_FIELD(cua_engine_options, log, 40, 8)
CUA_FIELD(cua_engine_options, log_user, 48, 8)
CUA_FIELD(cua_engine_options, threads, 56, 4)
CUA_FIELD(cua_engine_options, precision, 60, 4)
CUA_FIELD(cua_engine_options, prefix, 64, 8)
CUA_FIELD(cua_engine_options, prefix_length, 72, 8)
CUA_FIELD(cua_engine_options, plans, 80, 8)
CUA_FIELD(cua_engine_options, plans_length, 88, 8)

CUA_SIZE(cua_prompt, 40)
CUA_FIELD(cua_prompt, struct_size, 0, 4)
CUA_FIELD(cua_prompt, n_options, 4, 4)
CUA_FIELD(cua_prompt, ids, 8, 8)
CUA_FIELD(cua_prompt, n_ids, 16, 8)
CUA_FIELD(cua_prompt, text, 24, 8)
CUA_FIELD(cua_prompt, text_length, 32, 8)

CUA_SIZE(cua_score, 232)
CUA_FIELD(cua_score, struct_size, 0, 4)
CUA_FIELD(cua_score, best, 4, 4)
CUA_FIELD(cua_score, n_ids, 8, 8)
CUA_FIELD(cua_score, flags, 16, 4)
CUA_FIELD(cua_score, reserved, 20, 4)
CUA_FIELD(cua_score, logits, 24, 104)
CUA_FIELD(cua_score, probabilities, 128, 104)

CUA_SIZE(cua_stats, 80)
CUA_FIELD(cua_stats, struct_size, 0, 4)
CUA_FIELD(cua_stats, reserved, 4, 4)
CUA_FIELD(cua_stats, forwards, 8, 8)
CUA_FIELD(cua_stats, prompts, 16, 8)
CUA_FIELD(cua_stats, tokens, 24, 8)
CUA_FIELD(cua_stats, captures, 32, 8)
CUA_FIELD(cua_stats, replays, 40, 8)
CUA_FIELD(cua_stats, evictions, 48, 8)
CUA_FIELD(cua_stats, fallbacks, 56, 8)
CUA_FIELD(cua_stats, scratch_bytes, 64, 8)
CUA_FIELD(cua_stats, device_bytes, 72, 8)

CUA_LAYOUT(version, CUA_ABI_MAJOR == 4 && CUA_MAX_OPTIONS == 26)
CUA_LAYOUT(codes, CUA_OK == 0 && CUA_INVALID_ARGUMENT == 1 && CUA_ABI_MISMATCH == 2 &&
                      CUA_BAD_MODEL == 3 && CUA_NO_DEVICE == 4 && CUA_OUT_OF_MEMORY == 5 &&
                      CUA_PROMPT_TOO_LONG == 6 && CUA_DEVICE_FAILED == 7 && CUA_UNSUPPORTED == 8 &&
                      CUA_BUFFER_TOO_SMALL == 9 && CUA_NOT_FINITE == 10 && CUA_INTERNAL == 99)
CUA_LAYOUT(graph_modes, CUA_GRAPH_OFF == 0 && CUA_GRAPH_EXACT == 1 && CUA_GRAPH_BUCKET == 2)
CUA_LAYOUT(levels,
           CUA_LOG_ERROR == 0 && CUA_LOG_WARNING == 1 && CUA_LOG_INFO == 2 && CUA_LOG_DEBUG == 3)
CUA_LAYOUT(flags, CUA_SCORE_REPLAYED == 1 && CUA_SCORE_CAPTURED == 2 && CUA_SCORE_BATCHED == 4)

/* Redeclarations: a signature that differs does not compile. */
#ifdef __cplusplus
extern "C" {
#endif
uint32_t cua_abi_version(void);
const char *cua_build_info(void);
int32_t cua_engine_create(const cua_engine_options *, cua_engine **, cua_error *);
void cua_engine_destroy(cua_engine *);
int32_t cua_engine_describe(const cua_engine *, char *, uint64_t, uint64_t *, cua_error *);
int32_t cua_tokenize(const cua_engine *, const char *, uint64_t, uint32_t *, uint64_t, uint64_t *,
                     cua_error *);
int32_t cua_score_prompts(cua_engine *, const cua_prompt *, uint32_t, cua_score *, cua_error *);
int32_t cua_set_graph_mode(cua_engine *, uint32_t, cua_error *);
int32_t cua_engine_stats(const cua_engine *, cua_stats *, cua_error *);
#ifdef __cplusplus
}
#endif
