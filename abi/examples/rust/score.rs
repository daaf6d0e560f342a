// SPDX-License-Identifier: Apache-2.0
//! Scores a prompt, as text, as ids and in a batch, shows the errors that a program must expect, and
//! checks that threads and many engines do no harm. The same in every language of abi/examples.
//!
//!     score LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]
//!
//! IDS_MODEL: a model folder without a tokenizer. OTHER_LIBRARY: one of another ABI version.
mod cua;

use cua::{code, Engine, GraphMode, Library, Options, Prompt, Score};
use std::error::Error;
use std::process::ExitCode;

const MAX_TOKENS: u32 = 4096;
const OPTIONS: u32 = 3;
const THREADS: usize = 8;
const ROUNDS: usize = 5;
const ENGINES: usize = 50;

fn print_score(name: &str, score: &Score) {
    print!(
        "{name}: {}, {} tokens, flags {},",
        score.letter(),
        score.tokens,
        score.flags
    );
    for (letter, probability) in ('A'..='Z').zip(&score.probabilities) {
        print!(" {letter} {probability:.6}");
    }
    println!();
}

fn print_error<T>(name: &str, result: Result<T, cua::Error>) {
    match result {
        Ok(_) => println!("{name}: no error"),
        Err(error) => println!("{name}: {error}"),
    }
}

fn print_answers(engine: &Engine, text: &str, ids: &[u32]) -> Result<(), cua::Error> {
    let (as_text, as_ids) = (Prompt::text(text, OPTIONS), Prompt::ids(ids, OPTIONS));
    print_score("text", &engine.score(&as_text)?);
    print_score("ids", &engine.score(&as_ids)?);
    for score in engine.score_batch(&[as_text, as_ids, Prompt::text("A or B?", 2)])? {
        print_score("batch", &score);
    }

    match engine.set_graph_mode(GraphMode::Exact) {
        Ok(()) => println!("graphs: on"),
        // The CPU library: the answers are the same without.
        Err(error) if error.code == code::UNSUPPORTED => println!("graphs: {error}"),
        Err(error) => return Err(error),
    }
    for _ in 0..3 {
        print_score("again", &engine.score(&as_text)?);
    }
    let stats = engine.stats()?;
    println!(
        "statistics: forwards {}, prompts {}, tokens {}, captures {}, replays {}, evictions {}, \
         fallbacks {}, scratch_bytes {}, device_bytes {}",
        stats.forwards,
        stats.prompts,
        stats.tokens,
        stats.captures,
        stats.replays,
        stats.evictions,
        stats.fallbacks,
        stats.scratch_bytes,
        stats.device_bytes
    );
    Ok(())
}

fn print_errors(library: &Library, path: &str, model: &str, engine: &Engine, text: &str) {
    // SAFETY: there is no such file.
    match unsafe { Library::open(&format!("{path}.absent")) } {
        Ok(_) => println!("no library: no error"),
        Err(error) => println!("no library: {}", error.message),
    }
    print_error(
        "no model",
        library.open_engine(&format!("{model}/absent"), &Options::default()),
    );
    let long = vec![1; MAX_TOKENS as usize + 1];
    print_error("too long", engine.score(&Prompt::ids(&long, OPTIONS)));
    print_error("0 options", engine.score(&Prompt::text(text, 0)));
    print_error("27 options", engine.score(&Prompt::text(text, 27)));
    let short = engine.tokenize_into(text, &mut []);
    let needed = short.as_ref().map_or_else(|error| error.needed, |_| 0);
    print_error("short buffer", short);
    println!("short buffer: {needed} needed");
}

fn print_threads(engine: &Engine, text: &str) -> Result<(), cua::Error> {
    let prompt = Prompt::text(text, OPTIONS);
    let expected = engine.score(&prompt)?.probabilities;
    let equal =
        || (0..ROUNDS).all(|_| engine.score(&prompt).expect("a score").probabilities == expected);
    let all_equal = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(equal)).collect();
        threads
            .into_iter()
            .all(|thread| thread.join().expect("no panic"))
    });
    println!(
        "threads: {THREADS}, {} answers",
        if all_equal { "equal" } else { "DIFFERENT" }
    );
    Ok(())
}

fn resident_kilobytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

fn print_memory(library: &Library, model: &str) -> Result<(), Box<dyn Error>> {
    let mut early = 0;
    for number in 1..=ENGINES {
        let engine = library.open_engine(model, &Options::default())?;
        engine.score(&Prompt::ids(&[1, 2, 3], OPTIONS))?;
        drop(engine);
        if number == ENGINES / 5 {
            early = resident_kilobytes()?;
        }
    }
    let late = resident_kilobytes()?;
    println!(
        "memory: {early} kB after {} engines, {late} kB after {ENGINES}",
        ENGINES / 5
    );
    Ok(())
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (path, model) = (&arguments[1], &arguments[2]);
    // SAFETY: the user says that this is libcua.
    let library = unsafe { Library::open(path) }?;
    let (major, minor) = library.version();
    println!("abi {major}.{minor}");
    println!("build {}", library.build_info());
    let options = Options {
        max_prompt_tokens: MAX_TOKENS,
        ..Options::default()
    };
    let engine = library.open_engine(model, &options)?;
    println!("engine {}", engine.describe()?);

    let text = std::fs::read_to_string(&arguments[3])?;
    let ids = engine.tokenize(&text)?;
    println!(
        "prompt: {} tokens, {} to {}",
        ids.len(),
        ids[0],
        ids[ids.len() - 1]
    );
    print_answers(&engine, &text, &ids)?;
    print_errors(&library, path, model, &engine, &text);
    print_threads(&engine, &text)?;
    drop(engine);

    if let [_, _, _, _, ids_model, other] = arguments {
        let engine = library.open_engine(ids_model, &Options::default())?;
        print_error("no tokenizer", engine.score(&Prompt::text(&text, OPTIONS)));
        drop(engine);
        // SAFETY: it is refused.
        print_error("other version", unsafe { Library::open(other) });
        print_memory(&library, ids_model)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() != 4 && arguments.len() != 6 {
        eprintln!(
            "usage: {} LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]",
            arguments[0]
        );
        return ExitCode::from(2);
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
