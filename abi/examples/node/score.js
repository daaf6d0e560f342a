// SPDX-License-Identifier: Apache-2.0
// Scores a prompt, as text, as ids and in a batch, shows the errors that a program must expect, and
// checks that threads and many engines do no harm. The same in every language of abi/examples.
//   node score.js LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]
// IDS_MODEL: a model folder without a tokenizer. OTHER_LIBRARY: one of another ABI version.
'use strict';

const fs = require('node:fs');
const { Code, GraphMode, Library } = require('./cua');

const MAX_TOKENS = 4096;
const OPTIONS = 3;
const THREADS = 8;
const ROUNDS = 5;
const ENGINES = 50;
process.env.UV_THREADPOOL_SIZE = THREADS; // 4 by default; read when libuv starts its first

function printScore(name, score) {
  const shares = Array.from(score.probabilities, (p, i) => ` ${String.fromCharCode(65 + i)} ${p.toFixed(6)}`);
  console.log(`${name}: ${score.letter}, ${score.tokens} tokens, flags ${score.flags},${shares.join('')}`);
}

async function printError(name, action) {
  try {
    await action();
    console.log(`${name}: no error`);
  } catch (error) {
    if (error.name !== 'CuaError') throw error;
    console.log(`${name}: error ${error.code}: ${error.message}`);
  }
}

async function printAnswers(engine, text, ids) {
  printScore('text', await engine.score({ text, options: OPTIONS }));
  printScore('ids', await engine.score({ ids, options: OPTIONS }));
  const batch = [{ text, options: OPTIONS }, { ids: Array.from(ids), options: OPTIONS }, { text: 'A or B?', options: 2 }];
  for (const score of await engine.scoreBatch(batch)) printScore('batch', score);

  try {
    await engine.setGraphMode(GraphMode.EXACT);
    console.log('graphs: on');
  } catch (error) {
    if (error.code !== Code.UNSUPPORTED) throw error;
    // The CPU library: the answers are the same without.
    console.log(`graphs: error ${error.code}: ${error.message}`);
  }
  for (let i = 0; i < 3; ++i) printScore('again', await engine.score({ text, options: OPTIONS }));
  const s = engine.stats();
  console.log(`statistics: forwards ${s.forwards}, prompts ${s.prompts}, tokens ${s.tokens}, captures ${s.captures}, ` +
    `replays ${s.replays}, evictions ${s.evictions}, fallbacks ${s.fallbacks}, scratch_bytes ${s.scratchBytes}, ` +
    `device_bytes ${s.deviceBytes}`);
}

async function printErrors(library, file, model, engine, text) {
  try {
    new Library(`${file}.absent`);
    console.log('no library: no error');
  } catch (error) {
    console.log(`no library: ${error.message}`);
  }
  await printError('no model', () => library.open(`${model}/absent`));
  await printError('too long', () => engine.score({ ids: new Uint32Array(MAX_TOKENS + 1), options: OPTIONS }));
  await printError('0 options', () => engine.score({ text, options: 0 }));
  await printError('27 options', () => engine.score({ text, options: 27 }));
  await printError('short buffer', () => engine.tokenizeInto(text, new Uint32Array(0)));
  try {
    engine.tokenizeInto(text, new Uint32Array(0));
  } catch (error) {
    console.log(`short buffer: ${error.needed} needed`);
  }
}

async function printThreads(engine, text) {
  const prompt = { text, options: OPTIONS };
  const expected = (await engine.score(prompt)).probabilities.join();
  const equal = async () => {
    for (let i = 0; i < ROUNDS; ++i) {
      if ((await engine.score(prompt)).probabilities.join() !== expected) return false;
    }
    return true;
  };
  const answers = await Promise.all(Array.from({ length: THREADS }, equal));
  console.log(`threads: ${THREADS}, ${answers.every(Boolean) ? 'equal' : 'DIFFERENT'} answers`);
}

function residentKilobytes() {
  return Number(/^VmRSS:\s*(\d+) kB$/m.exec(fs.readFileSync('/proc/self/status', 'utf8'))[1]);
}

async function printMemory(library, model) {
  let early = 0;
  for (let number = 1; number <= ENGINES; ++number) {
    const engine = await library.open(model);
    try {
      await engine.score({ ids: [1, 2, 3], options: OPTIONS });
    } finally {
      engine.close();
    }
    if (number === ENGINES / 5) early = residentKilobytes();
  }
  console.log(`memory: ${early} kB after ${ENGINES / 5} engines, ${residentKilobytes()} kB after ${ENGINES}`);
}

async function main([file, model, promptFile, idsModel, other]) {
  const library = new Library(file);
  console.log(`abi ${library.version.join('.')}`);
  console.log(`build ${library.buildInfo}`);
  const engine = await library.open(model, { maxPromptTokens: MAX_TOKENS });
  console.log(`engine ${engine.describe()}`);

  const text = fs.readFileSync(promptFile, 'utf8');
  const ids = engine.tokenize(text);
  console.log(`prompt: ${ids.length} tokens, ${ids[0]} to ${ids[ids.length - 1]}`);
  await printAnswers(engine, text, ids);
  await printErrors(library, file, model, engine, text);
  await printThreads(engine, text);
  engine.close();

  if (other !== undefined) {
    const engine = await library.open(idsModel);
    await printError('no tokenizer', () => engine.score({ text, options: OPTIONS }));
    engine.close();
    await printError('other version', () => new Library(other));
    await printMemory(library, idsModel);
  }
}

const given = process.argv.slice(2);
if (given.length !== 3 && given.length !== 5) {
  console.error('usage: node score.js LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]');
  process.exitCode = 2;
} else {
  main(given).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}
