// SPDX-License-Identifier: Apache-2.0
// libcua in Node.js, through a small addon (cua_addon.c) that opens it with dlopen.
//
//   const library = new Library('libcua_cpu.so');
//   const engine = await library.open('model');
//   const score = await engine.score({ text: 'A or B?', options: 2 });
//   console.log(score.letter, score.probabilities);
//   engine.close();
//
// Scoring runs on libuv's threads, so the event loop goes on. Calls on one engine wait for each other
// there, each on a thread: to score many prompts, pass them in one call of scoreBatch.
'use strict';

const addon = require('./cua_addon.node');

// The `code` of an error of the library (its `name` is CuaError). A later library may have more.
const Code = Object.freeze({
  INVALID_ARGUMENT: 1,
  ABI_MISMATCH: 2,
  BAD_MODEL: 3,
  NO_DEVICE: 4,
  OUT_OF_MEMORY: 5,
  PROMPT_TOO_LONG: 6,
  DEVICE_FAILED: 7,
  UNSUPPORTED: 8,
  BUFFER_TOO_SMALL: 9, // the error's `needed` is the size that is enough
  NOT_FINITE: 10,
  INTERNAL: 99,
});

const GraphMode = Object.freeze({ OFF: 0, EXACT: 1, BUCKET: 2 });

// An opened libcua. It stays open until the process ends: the CUDA runtime cannot be unloaded.
class Library {
  #library;

  // Throws with ABI_MISMATCH for another version, INVALID_ARGUMENT for what cannot be loaded.
  constructor(file) {
    const opened = addon.open(file);
    this.#library = opened.library;
    this.version = [opened.major, opened.minor];
    this.buildInfo = opened.buildInfo; // JSON
  }

  // Loads a model. Options: device, maxPromptTokens, maxBatchTokens, graphMode, graphCapacity, threads,
  // precision, prefix, plans; absent ones are the library's defaults. cua.h says what each is.
  async open(modelDir, options = {}) {
    return new Engine(await addon.create(this.#library, modelDir, options));
  }
}

// A loaded model; made by Library.open.
class Engine {
  #engine;

  constructor(engine) {
    this.#engine = engine;
  }

  // A prompt is { text, options } or { ids, options }: ids are a Uint32Array or an array of numbers, and
  // `options` letters are in use.
  async score(prompt) {
    return (await this.scoreBatch([prompt]))[0];
  }

  // In as few forward passes as can be. Each prompt gets the answer that it gets alone.
  async scoreBatch(prompts) {
    const given = prompts.map(({ text, ids, options }) =>
      ids === undefined ? { text, options } : { ids: checkedIds(ids), options });
    const scores = await addon.score(this.#engine, given);
    for (const score of scores) score.letter = String.fromCharCode(65 + score.best);
    return scores;
  }

  tokenize(text) {
    try {
      addon.tokenize(this.#engine, text, new Uint32Array(0));
    } catch (error) {
      if (error.code !== Code.BUFFER_TOO_SMALL) throw error;
      const ids = new Uint32Array(error.needed);
      this.tokenizeInto(text, ids);
      return ids;
    }
    return new Uint32Array(0);
  }

  // Writes the ids into a Uint32Array and gives their number; BUFFER_TOO_SMALL if it is too short.
  tokenizeInto(text, ids) {
    return addon.tokenize(this.#engine, text, ids);
  }

  // JSON.
  describe() {
    return addon.describe(this.#engine);
  }

  async setGraphMode(mode) {
    await addon.setGraphMode(this.#engine, mode);
  }

  // Numbers: exact up to 2^53.
  stats() {
    return addon.stats(this.#engine);
  }

  // Frees the model once the calls under way have ended. Twice is fine; an engine that is never closed
  // is freed with its last reference, some time.
  close() {
    addon.close(this.#engine);
  }
}

// As a Uint32Array, which would else wrap around what is no 32-bit unsigned integer.
function checkedIds(ids) {
  if (ids instanceof Uint32Array) return ids;
  for (const id of ids) {
    if (!Number.isInteger(id) || id < 0 || id > 0xffffffff) throw new RangeError(`${id} is no token id`);
  }
  return Uint32Array.from(ids);
}

module.exports = { Library, Engine, Code, GraphMode };
