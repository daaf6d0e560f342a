/* SPDX-License-Identifier: Apache-2.0
 *
 * libcua: scores a prompt of the Cua-S1 decision model in one forward pass.
 * This header is the contract between the library and whoever opens it with dlopen.
 *
 * General rules, for every function
 *   Structs    Every struct begins with struct_size, set by the caller to sizeof(the struct).
 *              Input structs: the library reads min(struct_size, its own size), takes the rest as
 *              zero, and refuses a tail that it does not know unless every byte of it is zero.
 *              Output structs: the caller sets struct_size only; the library writes
 *              min(struct_size, its own size) bytes and reads nothing else.
 *              A struct_size under the smallest that version 4.0 accepts (cua_error 1032,
 *              cua_engine_options 56, cua_prompt 40, cua_score 232, cua_stats 80) or over 65,536 is
 *              CUA_INVALID_ARGUMENT. In an array of structs the struct_size of the first element is
 *              the stride of the array; that of the others must equal it.
 *   Strings    Pointer and length in bytes; no terminator is read. NULL with length 0 is empty.
 *   Results    Every fallible call returns a code. The text of an error goes into the caller's
 *              cua_error; NULL is fine; a cua_error with a struct_size outside the limits is left
 *              untouched (and does not change the call's result). On success code is 0 and the
 *              message is empty. No state is kept per thread.
 *   Outputs    After an error the contents of other outputs are unspecified unless stated.
 *   Threads    Unless stated, any thread may call any function on any engine at any time, except
 *              that cua_engine_destroy must not overlap or precede another call on its engine.
 *   Process    The library never prints, exits, reads the environment or installs a signal
 *              handler. No C++ exception crosses this boundary.
 *   CUDA       The current device of the calling thread is the same after a call as before it.
 */
#ifndef CUA_H
#define CUA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CUA_API __attribute__((visibility("default")))
#else
#define CUA_API
#endif

/* Version of this header. A client refuses a library whose major differs, and one whose minor is
 * smaller than its own. */
#define CUA_ABI_MAJOR 4u
#define CUA_ABI_MINOR 0u

/* Most options a prompt can have: the letters A to Z. */
#define CUA_MAX_OPTIONS 26u

/* Result codes. */
enum {
  CUA_OK = 0,
  CUA_INVALID_ARGUMENT = 1, /* an argument breaks this contract; the message names it */
  CUA_ABI_MISMATCH = 2,     /* for clients: never returned by version 4.0 */
  CUA_BAD_MODEL = 3,        /* the model folder is missing, damaged, or of another kind */
  CUA_NO_DEVICE = 4,        /* no usable GPU with that ordinal */
  CUA_OUT_OF_MEMORY = 5,    /* host or device memory; the engine stays usable */
  CUA_PROMPT_TOO_LONG = 6,  /* more than max_prompt_tokens */
  CUA_DEVICE_FAILED = 7,    /* sticky: the engine is unusable from then on */
  CUA_UNSUPPORTED = 8,      /* this build or this model cannot do that */
  CUA_BUFFER_TOO_SMALL = 9, /* the size needed has been stored */
  CUA_NOT_FINITE = 10,      /* the model produced a NaN or an infinity: no answer */
  CUA_INTERNAL = 99         /* a fault of the library */
};

/* How the CUDA library uses CUDA graphs; passed as uint32_t. */
enum {
  CUA_GRAPH_OFF = 0,   /* every forward launches its kernels */
  CUA_GRAPH_EXACT = 1, /* one capture per prompt length, made after its first use */
  CUA_GRAPH_BUCKET = 2 /* a few padded lengths, captured while loading */
};

/* Level of a log message. */
enum { CUA_LOG_ERROR = 0, CUA_LOG_WARNING = 1, CUA_LOG_INFO = 2, CUA_LOG_DEBUG = 3 };

/* Bits of cua_score.flags. */
enum {
  CUA_SCORE_REPLAYED = 1, /* answered by replaying a captured graph */
  CUA_SCORE_CAPTURED = 2, /* a graph of this length was captured by this call */
  CUA_SCORE_BATCHED = 4   /* shared its forward pass with other prompts */
};

/* One loaded model. Opaque; made by cua_engine_create, freed by cua_engine_destroy. */
typedef struct cua_engine cua_engine;

/* Output. Where an error's text goes. The message is UTF-8, terminated, cut at a character. */
typedef struct {
  uint32_t struct_size;
  int32_t code;
  char message[1024];
} cua_error;

/* Called by cua_engine_create and by scoring calls, on the calling thread or a thread of the
 * library, one call at a time. `message` is UTF-8 of `length` bytes, valid during the call only.
 * It must not call back into the library. */
typedef void (*cua_log_fn)(void *user, int32_t level, const char *message, uint64_t length);

/* Input. Zero means the default everywhere. The strings need to live during the call only. */
typedef struct {
  uint32_t struct_size;
  int32_t device;             /* CUDA ordinal; ignored by the CPU library */
  const char *model_dir;      /* the merged folder, UTF-8; required */
  uint64_t model_dir_length;
  uint32_t max_prompt_tokens; /* longest prompt accepted; 0: 16384 */
  uint32_t max_batch_tokens;  /* tokens of one forward pass over several prompts; 0: the library's choice */
  uint32_t graph_mode;        /* CUA_GRAPH_*; the CPU library takes CUA_GRAPH_OFF only */
  uint32_t graph_capacity;    /* captures kept in mode EXACT; 0: 8 */
  cua_log_fn log;             /* NULL: no log */
  void *log_user;
  /* The smallest options of version 4.0 end here (56 bytes). */
  uint32_t threads;           /* CPU library: threads of a forward pass; 0: all cores */
  uint32_t precision;         /* 0: bf16 (CUDA) or fp32 (CPU); 1: fp8 (CUA_UNSUPPORTED) */
  const char *prefix;         /* text tokenised at load; the state after its last multiple of 64 */
  uint64_t prefix_length;     /* tokens starts every prompt that begins with it; NULL: none */
  const char *plans;          /* file of GEMM plans; NULL: built in; ignored by the CPU library */
  uint64_t plans_length;
} cua_engine_options;

/* Input. One prompt, as token ids or, where ids is NULL, as text. */
typedef struct {
  uint32_t struct_size;
  uint32_t n_options;  /* letters in use, 1 to 26 */
  const uint32_t *ids; /* [n_ids], each below the vocabulary size */
  uint64_t n_ids;      /* 1 to max_prompt_tokens */
  const char *text;    /* UTF-8; tokenised exactly as cua_tokenize does */
  uint64_t text_length;
} cua_prompt;

/* Output. */
typedef struct {
  uint32_t struct_size;
  uint32_t best;           /* index of the largest logit in use; the earliest of equals */
  uint64_t n_ids;          /* tokens of the prompt */
  uint32_t flags;          /* CUA_SCORE_* */
  uint32_t reserved;       /* 0 */
  float logits[26];        /* of the letters A to Z, all filled */
  float probabilities[26]; /* softmax over the first n_options; 0 from there on */
} cua_score;

/* Output. Counters since the engine was made. Captures, replays, evictions, fallbacks and
 * device_bytes are 0 in the CPU library. */
typedef struct {
  uint32_t struct_size;
  uint32_t reserved;      /* 0 */
  uint64_t forwards;      /* forward passes finished */
  uint64_t prompts;       /* prompts scored */
  uint64_t tokens;        /* tokens of those prompts */
  uint64_t captures;      /* graphs captured */
  uint64_t replays;       /* graphs replayed */
  uint64_t evictions;     /* graphs dropped to make room */
  uint64_t fallbacks;     /* captures that failed; the eager result was returned */
  uint64_t scratch_bytes; /* working memory of the forward pass, bytes */
  uint64_t device_bytes;  /* device memory held by the engine, bytes */
} cua_stats;

/* major << 16 | minor of the library. Cannot fail; callable before anything else. */
CUA_API uint32_t cua_abi_version(void);

/* Static JSON text, terminated: "version", "backend" ("cuda" or "cpu"), "architectures", "cuda" and
 * "cublaslt" versions (null in the CPU library). Cannot fail; never freed by the caller. */
CUA_API const char *cua_build_info(void);

/* Loads the model in options->model_dir and makes an engine.
 * On success *engine is a new engine that the caller frees with cua_engine_destroy; on an error it
 * is NULL and nothing is kept. Takes seconds for a large model.
 * Errors: INVALID_ARGUMENT (NULL options or engine, struct_size, non-zero unknown tail, an unknown
 * graph_mode or precision, model_dir or prefix not UTF-8), BAD_MODEL, NO_DEVICE, OUT_OF_MEMORY,
 * UNSUPPORTED, INTERNAL. */
CUA_API int32_t cua_engine_create(const cua_engine_options *options, cua_engine **engine,
                                  cua_error *error);

/* Frees the engine and all that it holds; NULL is fine. No other call on this engine may be running
 * or follow. */
CUA_API void cua_engine_destroy(cua_engine *engine);

/* Writes a JSON object, UTF-8 without a terminator, into json[capacity] and its length into
 * *needed. It has at least "model" (the marker's, or null), "tokenizer" (whether text can be
 * scored), "max_prompt_tokens", "vocabulary", "backend", "device" and "batch_invariant" (whether a
 * prompt's logits are the same bits alone and in any company, whatever is scored beside it).
 * capacity 0 with json NULL asks for the size.
 * Errors: INVALID_ARGUMENT (NULL engine or needed, NULL json with a capacity), BUFFER_TOO_SMALL
 * (*needed is the size required; nothing else is written). */
CUA_API int32_t cua_engine_describe(const cua_engine *engine, char *json, uint64_t capacity,
                                    uint64_t *needed, cua_error *error);

/* Tokenises text[length], UTF-8, adding nothing; spellings of special tokens become those tokens.
 * Writes the ids into ids[capacity] and their number into *count. Never more ids than bytes after
 * NFC normalisation. capacity 0 with ids NULL asks for the number.
 * Errors: INVALID_ARGUMENT (NULL engine, text with a length, count, or ids with a capacity; text
 * that is not UTF-8), UNSUPPORTED (a folder without tokenizer.json), BUFFER_TOO_SMALL (*count is
 * the number required; ids is left alone), OUT_OF_MEMORY. */
CUA_API int32_t cua_tokenize(const cua_engine *engine, const char *text, uint64_t length,
                             uint32_t *ids, uint64_t capacity, uint64_t *count, cua_error *error);

/* Scores prompts[n] into scores[n], in as few forward passes as max_batch_tokens allows: the call is
 * split, never refused; a prompt longer than max_batch_tokens gets a pass of its own. An answer does
 * not depend on the other prompts of the call, bit for bit (see docs/numerics.md). n 0 does nothing.
 * All prompts are checked before the first pass. Calls on one engine run one after the other.
 * Errors: INVALID_ARGUMENT (a NULL array with n, struct_size, tail, n_options, no ids, an id at or
 * above the vocabulary size, text that is not UTF-8; the message names the prompt's index),
 * PROMPT_TOO_LONG, UNSUPPORTED (text without a tokenizer), OUT_OF_MEMORY, NOT_FINITE,
 * DEVICE_FAILED, INTERNAL. After an error no score is valid. */
CUA_API int32_t cua_score_prompts(cua_engine *engine, const cua_prompt *prompts, uint32_t n,
                                  cua_score *scores, cua_error *error);

/* Changes the graph mode at any time; CUA_GRAPH_OFF drops the captures.
 * Errors: INVALID_ARGUMENT (NULL engine, unknown mode), UNSUPPORTED (a mode other than OFF in the
 * CPU library), DEVICE_FAILED. */
CUA_API int32_t cua_set_graph_mode(cua_engine *engine, uint32_t mode, cua_error *error);

/* Reads the counters. Does not wait for a running forward pass.
 * Errors: INVALID_ARGUMENT (NULL engine or stats, struct_size). */
CUA_API int32_t cua_engine_stats(const cua_engine *engine, cua_stats *stats, cua_error *error);

#ifdef __cplusplus
}
#endif
#endif /* CUA_H */
