/* SPDX-License-Identifier: Apache-2.0
 *
 * Any thread may call any function on any engine at any time: two engines, 8 threads each, for
 * SECONDS, each checking every answer against the one it got alone.
 *   concurrency LIBRARY IDS_MODEL TEXT_MODEL SECONDS
 */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <time.h>

#include "open_library.h"

enum { THREADS = 16, LEAST_ROUNDS = THREADS, PROMPTS = 6, MOST_TOKENS = 40 };

static const char text[] = "One of A, B and C: \xe2\x82\xac 12, again and again.";
static const char *ids_model;
static cua_engine *engines[2]; /* without and with a tokenizer */
static uint32_t ids[PROMPTS][MOST_TOKENS];
static cua_prompt prompts[PROMPTS];
static cua_score alone[2][PROMPTS];
static uint64_t text_tokens;
static time_t end;

struct worker {
  pthread_t thread;
  int number; /* even: scores on the first engine, odd: on the second */
  uint64_t rounds, scored;
};

static cua_engine *open_engine(const char *model) {
  cua_engine_options options;
  cua_engine *engine = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.model_dir = model;
  options.model_dir_length = strlen(model);
  options.threads = 2;
  options.max_batch_tokens = 64; /* several passes a call */
  REQUIRE(create(&options, &engine, NULL) == CUA_OK);
  return engine;
}

static void clear(cua_score *scores) {
  int i;
  memset(scores, 0, PROMPTS * sizeof *scores);
  for (i = 0; i < PROMPTS; ++i) scores[i].struct_size = sizeof *scores;
}

static int same(const cua_score *a, const cua_score *b) {
  return a->best == b->best && a->n_ids == b->n_ids &&
         memcmp(a->logits, b->logits, sizeof a->logits) == 0 &&
         memcmp(a->probabilities, b->probabilities, sizeof a->probabilities) == 0;
}

static time_t now(void) {
  struct timespec at;
  REQUIRE(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
  return at.tv_sec;
}

static void *work(void *argument) {
  struct worker *const self = argument;
  const int e = self->number % 2;
  cua_engine *const engine = engines[e];
  uint64_t round;
  for (round = 0; round < LEAST_ROUNDS || now() < end; ++round) {
    cua_score scores[PROMPTS];
    cua_stats counters;
    cua_error error;
    char json[4096];
    uint32_t tokens[sizeof text];
    uint64_t length = 0;
    int i;
    error.struct_size = sizeof error;
    clear(scores);
    if (round % 3 == 0) {
      REQUIRE(score(engine, prompts, PROMPTS, scores, &error) == CUA_OK);
      for (i = 0; i < PROMPTS; ++i) REQUIRE(same(&scores[i], &alone[e][i]));
      self->scored += PROMPTS;
    } else {
      i = (int)(((uint64_t)self->number + round) % PROMPTS);
      REQUIRE(score(engine, &prompts[i], 1, scores, &error) == CUA_OK);
      REQUIRE(same(scores, &alone[e][i]));
      ++self->scored;
    }
    counters.struct_size = sizeof counters;
    REQUIRE(stats(engine, &counters, &error) == CUA_OK && counters.forwards > 0);
    REQUIRE(describe(engine, json, sizeof json, &length, &error) == CUA_OK);
    REQUIRE(set_graph_mode(engine, CUA_GRAPH_OFF, &error) == CUA_OK);
    REQUIRE(set_graph_mode(engine, 77, &error) == CUA_INVALID_ARGUMENT);
    REQUIRE(strstr(error.message, "mode") != NULL);
    REQUIRE(tokenize(engines[1], text, sizeof text - 1, tokens, sizeof text, &length, &error) ==
            CUA_OK);
    REQUIRE(length == text_tokens);
    if ((uint64_t)self->number == round % THREADS) destroy(open_engine(ids_model));
  }
  self->rounds = round;
  return NULL;
}

int main(int argc, char **argv) {
  static struct worker workers[THREADS];
  int i, e;
  uint32_t random = 1, t;
  uint64_t rounds = 0, scored[2] = {0, 0}, prompts_before[2];
  if (argc != 5) {
    fprintf(stderr, "usage: concurrency LIBRARY IDS_MODEL TEXT_MODEL SECONDS\n");
    return 2;
  }
  ids_model = argv[2];
  open_library(argv[1], RTLD_NOW | RTLD_LOCAL);
  engines[0] = open_engine(argv[2]);
  engines[1] = open_engine(argv[3]);
  REQUIRE(tokenize(engines[1], text, sizeof text - 1, NULL, 0, &text_tokens, NULL) ==
          CUA_BUFFER_TOO_SMALL);
  memset(prompts, 0, sizeof prompts);
  for (i = 0; i < PROMPTS; ++i) {
    prompts[i].struct_size = sizeof *prompts;
    prompts[i].n_options = (uint32_t)(2 + i);
    prompts[i].ids = ids[i];
    prompts[i].n_ids = (uint64_t)(5 + 7 * i);
    for (t = 0; t < MOST_TOKENS; ++t) {
      random = random * 1664525 + 1013904223;
      ids[i][t] = (random >> 16) % 512;
    }
  }
  for (e = 0; e < 2; ++e) {
    cua_stats counters;
    clear(alone[e]);
    for (i = 0; i < PROMPTS; ++i) {
      REQUIRE(score(engines[e], &prompts[i], 1, &alone[e][i], NULL) == CUA_OK);
    }
    counters.struct_size = sizeof counters;
    REQUIRE(stats(engines[e], &counters, NULL) == CUA_OK);
    prompts_before[e] = counters.prompts;
  }
  end = now() + atoi(argv[4]);
  for (i = 0; i < THREADS; ++i) {
    workers[i].number = i;
    REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  }
  for (i = 0; i < THREADS; ++i) {
    REQUIRE(pthread_join(workers[i].thread, NULL) == 0);
    rounds += workers[i].rounds;
    scored[i % 2] += workers[i].scored;
  }
  for (e = 0; e < 2; ++e) {
    cua_stats counters;
    counters.struct_size = sizeof counters;
    REQUIRE(stats(engines[e], &counters, NULL) == CUA_OK);
    REQUIRE(counters.prompts - prompts_before[e] == scored[e]); /* no update was lost */
    destroy(engines[e]);
  }
  printf("%" PRIu64 " prompts in %" PRIu64 " rounds on %d threads\n", scored[0] + scored[1], rounds,
         THREADS);
  return 0;
}
