/* SPDX-License-Identifier: Apache-2.0
 *
 * libcua for Node.js: what cua.js is made of. Node-API 8, so that one build works with every
 * Node.js from 16 on. No state outside of the values that it makes: workers may load it as well.
 *
 * Calls that take long (create, score, setGraphMode) run on libuv's threads and give a promise.
 * What they read is copied before, since JavaScript goes on meanwhile.
 */
#define NAPI_VERSION 8
#include <node_api.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cua_library.h"

/* Where Node-API fails, an exception is under way: leave the function. */
#define TRY(call) \
  if ((call) != napi_ok) return fail_of_node(env)

static napi_value fail_of_node(napi_env env) {
  const napi_extended_error_info *info = NULL;
  const char *message = NULL;
  bool pending = false;
  if (napi_get_last_error_info(env, &info) == napi_ok) message = info->error_message;
  napi_is_exception_pending(env, &pending); /* changes *info */
  if (!pending) napi_throw_type_error(env, NULL, message != NULL ? message : "Node-API failed");
  return NULL;
}

/* An Error with the library's code and text and, for BUFFER_TOO_SMALL, the size needed. */
static napi_value error_value(napi_env env, const cua_error *error, uint64_t needed) {
  napi_value message, name, code, size, value;
  TRY(napi_create_string_utf8(env, error->message, NAPI_AUTO_LENGTH, &message));
  TRY(napi_create_error(env, NULL, message, &value));
  TRY(napi_create_string_utf8(env, "CuaError", NAPI_AUTO_LENGTH, &name));
  TRY(napi_create_int32(env, error->code, &code));
  TRY(napi_create_double(env, (double)needed, &size));
  TRY(napi_set_named_property(env, value, "name", name));
  TRY(napi_set_named_property(env, value, "code", code));
  TRY(napi_set_named_property(env, value, "needed", size));
  return value;
}

static napi_value throw_error(napi_env env, const cua_error *error, uint64_t needed) {
  const napi_value value = error_value(env, error, needed);
  if (value != NULL) napi_throw(env, value);
  return NULL;
}

static napi_value throw_out_of_memory(napi_env env) {
  cua_error error = {.struct_size = sizeof error, .code = CUA_OUT_OF_MEMORY};
  strcpy(error.message, "out of host memory");
  return throw_error(env, &error, 0);
}

/* An engine as JavaScript holds it. All but `calls` of it is used on JavaScript's thread alone. */
typedef struct {
  cua_library library; /* its functions: JavaScript may let go of the library first */
  cua_engine *engine;  /* NULL once closed */
  uint32_t calls;      /* not yet completed; while there are any, the engine is not destroyed */
  bool closing;
} engine_box;

static void destroy_when_idle(engine_box *box) {
  if (box->closing && box->calls == 0) {
    box->library.engine_destroy(box->engine);
    box->engine = NULL;
  }
}

static void finalize_engine(napi_env env, void *data, void *hint) {
  engine_box *const box = data;
  (void)env;
  (void)hint;
  box->closing = true; /* no call is under way: each keeps its engine referenced */
  destroy_when_idle(box);
  free(box);
}

/* The engine in `value`, or NULL and an exception if it is closed. */
static engine_box *open_box(napi_env env, napi_value value) {
  void *data = NULL;
  if (napi_get_value_external(env, value, &data) != napi_ok) {
    fail_of_node(env);
    return NULL;
  }
  if (((engine_box *)data)->closing) {
    napi_throw_error(env, NULL, "the engine is closed");
    return NULL;
  }
  return data;
}

/* A string as UTF-8, for the caller to free; NULL and an exception where it is none. */
static char *text_of(napi_env env, napi_value value, uint64_t *length) {
  size_t size = 0;
  char *text;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &size) != napi_ok) {
    fail_of_node(env);
    return NULL;
  }
  if ((text = malloc(size + 1)) == NULL) {
    throw_out_of_memory(env);
    return NULL;
  }
  napi_get_value_string_utf8(env, value, text, size + 1, &size);
  *length = size;
  return text;
}

/* object[name] as a number of 32 bits; 0, the default everywhere, where it is absent. */
static bool number_property(napi_env env, napi_value object, const char *name, uint32_t *number) {
  napi_value value;
  napi_valuetype type;
  *number = 0;
  if (napi_get_named_property(env, object, name, &value) != napi_ok ||
      napi_typeof(env, value, &type) != napi_ok ||
      (type != napi_undefined && napi_get_value_uint32(env, value, number) != napi_ok)) {
    fail_of_node(env);
    return false;
  }
  return true;
}

/* object[name] as text; NULL where it is absent. */
static bool text_property(napi_env env, napi_value object, const char *name, const char **text,
                          uint64_t *length) {
  napi_value value;
  napi_valuetype type;
  *text = NULL;
  *length = 0;
  if (napi_get_named_property(env, object, name, &value) != napi_ok ||
      napi_typeof(env, value, &type) != napi_ok) {
    fail_of_node(env);
    return false;
  }
  return type == napi_undefined || (*text = text_of(env, value, length)) != NULL;
}

static napi_value set_number(napi_env env, napi_value object, const char *name, double number) {
  napi_value value;
  TRY(napi_create_double(env, number, &value));
  TRY(napi_set_named_property(env, object, name, value));
  return object;
}

/* A call of the library under way, and all that it uses. */
typedef struct {
  napi_async_work work;
  napi_deferred deferred;
  napi_ref owner;  /* keeps the engine alive */
  engine_box *box; /* the engine; one that create makes */
  enum { CREATE, SCORE, SET_GRAPH_MODE } what;
  cua_engine_options options;
  uint32_t n;
  cua_prompt *prompts;
  cua_score *scores;
  uint32_t mode;
  int32_t code;
  cua_error error;
} job;

static void free_job(napi_env env, job *j) {
  uint32_t i;
  if (j->what == CREATE) {
    free((char *)j->options.model_dir);
    free((char *)j->options.prefix);
    free((char *)j->options.plans);
  }
  for (i = 0; j->prompts != NULL && i < j->n; ++i) {
    free((uint32_t *)j->prompts[i].ids);
    free((char *)j->prompts[i].text);
  }
  free(j->prompts);
  free(j->scores);
  if (j->owner != NULL) napi_delete_reference(env, j->owner);
  if (j->work != NULL) napi_delete_async_work(env, j->work);
  free(j);
}

/* On a thread of libuv's: no Node-API here. */
static void execute(napi_env env, void *data) {
  job *const j = data;
  const cua_library *const cua = &j->box->library;
  (void)env;
  if (j->what == CREATE) {
    j->code = cua->engine_create(&j->options, &j->box->engine, &j->error);
  } else if (j->what == SCORE) {
    j->code = cua->score_prompts(j->box->engine, j->prompts, j->n, j->scores, &j->error);
  } else {
    j->code = cua->set_graph_mode(j->box->engine, j->mode, &j->error);
  }
}

static napi_value floats(napi_env env, const float *from, uint32_t n) {
  napi_value buffer, array;
  void *data;
  TRY(napi_create_arraybuffer(env, n * sizeof *from, &data, &buffer));
  memcpy(data, from, n * sizeof *from);
  TRY(napi_create_typedarray(env, napi_float32_array, n, buffer, 0, &array));
  return array;
}

static napi_value scores_value(napi_env env, const job *j) {
  napi_value scores, object, values;
  uint32_t i;
  TRY(napi_create_array_with_length(env, j->n, &scores));
  for (i = 0; i < j->n; ++i) {
    const cua_score *const score = &j->scores[i];
    TRY(napi_create_object(env, &object));
    if (set_number(env, object, "best", score->best) == NULL ||
        set_number(env, object, "tokens", (double)score->n_ids) == NULL ||
        set_number(env, object, "flags", score->flags) == NULL) {
      return NULL;
    }
    if ((values = floats(env, score->logits, CUA_MAX_OPTIONS)) == NULL) return NULL;
    TRY(napi_set_named_property(env, object, "logits", values));
    if ((values = floats(env, score->probabilities, j->prompts[i].n_options)) == NULL) return NULL;
    TRY(napi_set_named_property(env, object, "probabilities", values));
    TRY(napi_set_element(env, scores, i, object));
  }
  return scores;
}

/* Back on JavaScript's thread: settles the promise. */
static void complete(napi_env env, napi_status status, void *data) {
  job *const j = data;
  napi_value value = NULL;
  if (status != napi_ok) { /* cancelled: the process ends */
    j->code = j->error.code = CUA_INTERNAL;
    strcpy(j->error.message, "the call was cancelled");
  }
  if (j->code == CUA_OK) {
    if (j->what == SCORE) {
      value = scores_value(env, j);
    } else if (j->what == SET_GRAPH_MODE) {
      napi_get_undefined(env, &value);
    } else if (napi_create_external(env, j->box, finalize_engine, NULL, &value) == napi_ok) {
      j->box->calls = 0;
      j->box = NULL; /* JavaScript's from here on */
    }
  }
  if (value != NULL) {
    napi_resolve_deferred(env, j->deferred, value);
  } else {
    bool pending = false;
    napi_is_exception_pending(env, &pending);
    if (pending) {
      napi_get_and_clear_last_exception(env, &value);
    } else {
      value = error_value(env, &j->error, 0);
    }
    napi_reject_deferred(env, j->deferred, value);
  }
  if (j->what != CREATE) {
    --j->box->calls;
    destroy_when_idle(j->box);
  } else if (j->box != NULL) {
    j->box->library.engine_destroy(j->box->engine); /* NULL after an error */
    free(j->box);
  }
  free_job(env, j);
}

/* Hands a job to libuv and gives its promise. */
static napi_value start(napi_env env, job *j, napi_value owner) {
  napi_value promise, name;
  if (napi_create_reference(env, owner, 1, &j->owner) != napi_ok ||
      napi_create_string_utf8(env, "cua", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_async_work(env, NULL, name, execute, complete, j, &j->work) != napi_ok ||
      napi_create_promise(env, &j->deferred, &promise) != napi_ok ||
      napi_queue_async_work(env, j->work) != napi_ok) {
    if (j->what == CREATE) free(j->box);
    free_job(env, j);
    return fail_of_node(env);
  }
  ++j->box->calls;
  return promise;
}

static job *new_job(napi_env env, int what, engine_box *box) {
  job *const j = calloc(1, sizeof *j);
  if (j == NULL) {
    throw_out_of_memory(env);
    return NULL;
  }
  j->what = what;
  j->box = box;
  j->error.struct_size = sizeof j->error;
  return j;
}

static void free_library(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  free(data);
}

/* open(path) -> {library, major, minor, buildInfo} */
static napi_value open_library(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result, value;
  size_t n = 1;
  uint64_t length;
  cua_error error = {.struct_size = sizeof error};
  cua_library *library;
  int32_t code;
  char *path;
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  if ((path = text_of(env, arguments[0], &length)) == NULL) return NULL;
  if ((library = malloc(sizeof *library)) == NULL) {
    free(path);
    return throw_out_of_memory(env);
  }
  code = cua_library_open(path, library, &error);
  free(path);
  if (code != CUA_OK) {
    free(library);
    return throw_error(env, &error, 0);
  }
  if (napi_create_external(env, library, free_library, NULL, &value) != napi_ok) {
    free(library);
    return fail_of_node(env);
  }
  TRY(napi_create_object(env, &result));
  TRY(napi_set_named_property(env, result, "library", value));
  TRY(napi_create_string_utf8(env, library->build_info(), NAPI_AUTO_LENGTH, &value));
  TRY(napi_set_named_property(env, result, "buildInfo", value));
  if (set_number(env, result, "major", library->abi_version() >> 16) == NULL) return NULL;
  return set_number(env, result, "minor", library->abi_version() & 0xffff);
}

/* create(library, modelDir, options) -> promise of an engine */
static napi_value create(napi_env env, napi_callback_info info) {
  napi_value arguments[3];
  size_t n = 3;
  void *library;
  engine_box *box;
  uint32_t device = 0;
  job *j;
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  TRY(napi_get_value_external(env, arguments[0], &library));
  if ((box = calloc(1, sizeof *box)) == NULL) return throw_out_of_memory(env);
  box->library = *(const cua_library *)library;
  if ((j = new_job(env, CREATE, box)) == NULL) {
    free(box);
    return NULL;
  }
  j->options.struct_size = sizeof j->options;
  j->options.model_dir = text_of(env, arguments[1], &j->options.model_dir_length);
  if (j->options.model_dir == NULL || !number_property(env, arguments[2], "device", &device) ||
      !number_property(env, arguments[2], "maxPromptTokens", &j->options.max_prompt_tokens) ||
      !number_property(env, arguments[2], "maxBatchTokens", &j->options.max_batch_tokens) ||
      !number_property(env, arguments[2], "graphMode", &j->options.graph_mode) ||
      !number_property(env, arguments[2], "graphCapacity", &j->options.graph_capacity) ||
      !number_property(env, arguments[2], "threads", &j->options.threads) ||
      !number_property(env, arguments[2], "precision", &j->options.precision) ||
      !text_property(env, arguments[2], "prefix", &j->options.prefix, &j->options.prefix_length) ||
      !text_property(env, arguments[2], "plans", &j->options.plans, &j->options.plans_length)) {
    free(box);
    free_job(env, j);
    return NULL;
  }
  j->options.device = (int32_t)device;
  return start(env, j, arguments[0]);
}

/* {text or ids, options} */
static bool read_prompt(napi_env env, napi_value from, cua_prompt *prompt) {
  napi_value value;
  bool typed = false;
  prompt->struct_size = sizeof *prompt;
  if (!number_property(env, from, "options", &prompt->n_options)) return false;
  if (napi_get_named_property(env, from, "ids", &value) != napi_ok ||
      napi_is_typedarray(env, value, &typed) != napi_ok) {
    fail_of_node(env);
    return false;
  }
  if (typed) {
    napi_typedarray_type type;
    size_t length = 0;
    void *data;
    uint32_t *ids;
    if (napi_get_typedarray_info(env, value, &type, &length, &data, NULL, NULL) != napi_ok ||
        type != napi_uint32_array) {
      napi_throw_type_error(env, NULL, "ids is not a Uint32Array");
      return false;
    }
    if ((ids = malloc(length * sizeof *ids + 1)) == NULL) { /* + 1: not NULL, which is a text */
      throw_out_of_memory(env);
      return false;
    }
    if (length > 0) memcpy(ids, data, length * sizeof *ids);
    prompt->ids = ids;
    prompt->n_ids = length;
    return true;
  }
  return text_property(env, from, "text", &prompt->text, &prompt->text_length);
}

/* score(engine, prompts) -> promise of an array of scores */
static napi_value score(napi_env env, napi_callback_info info) {
  napi_value arguments[2], element;
  size_t argc = 2;
  engine_box *box;
  uint32_t n, i;
  job *j;
  TRY(napi_get_cb_info(env, info, &argc, arguments, NULL, NULL));
  if ((box = open_box(env, arguments[0])) == NULL) return NULL;
  TRY(napi_get_array_length(env, arguments[1], &n));
  if ((j = new_job(env, SCORE, box)) == NULL) return NULL;
  j->n = n;
  j->prompts = calloc(n + 1u, sizeof *j->prompts);
  j->scores = calloc(n + 1u, sizeof *j->scores);
  if (j->prompts == NULL || j->scores == NULL) {
    free_job(env, j);
    return throw_out_of_memory(env);
  }
  for (i = 0; i < n; ++i) {
    j->scores[i].struct_size = sizeof *j->scores;
    if (napi_get_element(env, arguments[1], i, &element) != napi_ok) {
      free_job(env, j);
      return fail_of_node(env);
    }
    if (!read_prompt(env, element, &j->prompts[i])) {
      free_job(env, j);
      return NULL;
    }
  }
  return start(env, j, arguments[0]);
}

/* setGraphMode(engine, mode) -> promise: it waits for a running forward pass */
static napi_value set_graph_mode(napi_env env, napi_callback_info info) {
  napi_value arguments[2];
  size_t n = 2;
  engine_box *box;
  uint32_t mode;
  job *j;
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  TRY(napi_get_value_uint32(env, arguments[1], &mode));
  if ((box = open_box(env, arguments[0])) == NULL) return NULL;
  if ((j = new_job(env, SET_GRAPH_MODE, box)) == NULL) return NULL;
  j->mode = mode;
  return start(env, j, arguments[0]);
}

/* tokenize(engine, text, Uint32Array) -> number of ids written */
static napi_value tokenize(napi_env env, napi_callback_info info) {
  napi_value arguments[3], result;
  size_t n = 3, capacity = 0;
  uint64_t length, count = 0;
  engine_box *box;
  napi_typedarray_type type;
  void *ids = NULL;
  cua_error error = {.struct_size = sizeof error};
  char *text;
  int32_t code;
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  if ((box = open_box(env, arguments[0])) == NULL) return NULL;
  TRY(napi_get_typedarray_info(env, arguments[2], &type, &capacity, &ids, NULL, NULL));
  if (type != napi_uint32_array) {
    napi_throw_type_error(env, NULL, "ids is not a Uint32Array");
    return NULL;
  }
  if ((text = text_of(env, arguments[1], &length)) == NULL) return NULL;
  code = box->library.tokenize(box->engine, text, length, capacity > 0 ? ids : NULL, capacity,
                               &count, &error);
  free(text);
  if (code != CUA_OK) return throw_error(env, &error, code == CUA_BUFFER_TOO_SMALL ? count : 0);
  TRY(napi_create_double(env, (double)count, &result));
  return result;
}

/* describe(engine) -> JSON */
static napi_value describe(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result;
  size_t n = 1;
  engine_box *box;
  uint64_t length = 0;
  cua_error error = {.struct_size = sizeof error};
  char *json;
  napi_status status;
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  if ((box = open_box(env, arguments[0])) == NULL) return NULL;
  box->library.engine_describe(box->engine, NULL, 0, &length, NULL);
  if ((json = malloc(length + 1)) == NULL) return throw_out_of_memory(env);
  if (box->library.engine_describe(box->engine, json, length, &length, &error) != CUA_OK) {
    free(json);
    return throw_error(env, &error, 0);
  }
  status = napi_create_string_utf8(env, json, length, &result);
  free(json);
  TRY(status);
  return result;
}

/* stats(engine) -> object */
static napi_value stats(napi_env env, napi_callback_info info) {
  napi_value arguments[1], result;
  size_t n = 1, i;
  engine_box *box;
  cua_stats s = {.struct_size = sizeof s};
  cua_error error = {.struct_size = sizeof error};
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  if ((box = open_box(env, arguments[0])) == NULL) return NULL;
  if (box->library.engine_stats(box->engine, &s, &error) != CUA_OK) {
    return throw_error(env, &error, 0);
  }
  const struct {
    const char *name;
    uint64_t value;
  } counters[] = {
      {"forwards", s.forwards},
      {"prompts", s.prompts},
      {"tokens", s.tokens},
      {"captures", s.captures},
      {"replays", s.replays},
      {"evictions", s.evictions},
      {"fallbacks", s.fallbacks},
      {"scratchBytes", s.scratch_bytes},
      {"deviceBytes", s.device_bytes},
  };
  TRY(napi_create_object(env, &result));
  for (i = 0; i < sizeof counters / sizeof *counters; ++i) {
    if (set_number(env, result, counters[i].name, (double)counters[i].value) == NULL) return NULL;
  }
  return result;
}

/* close(engine): frees it once its calls have ended. Twice is fine. */
static napi_value close_engine(napi_env env, napi_callback_info info) {
  napi_value arguments[1];
  size_t n = 1;
  void *data;
  TRY(napi_get_cb_info(env, info, &n, arguments, NULL, NULL));
  TRY(napi_get_value_external(env, arguments[0], &data));
  ((engine_box *)data)->closing = true;
  destroy_when_idle(data);
  return NULL;
}

NAPI_MODULE_INIT() {
  const struct {
    const char *name;
    napi_callback function;
  } functions[] = {
      {"open", open_library}, {"create", create},
      {"score", score},       {"setGraphMode", set_graph_mode},
      {"tokenize", tokenize}, {"describe", describe},
      {"stats", stats},       {"close", close_engine},
  };
  napi_value function;
  size_t i;
  for (i = 0; i < sizeof functions / sizeof *functions; ++i) {
    TRY(napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function, NULL,
                             &function));
    TRY(napi_set_named_property(env, exports, functions[i].name, function));
  }
  return exports;
}
