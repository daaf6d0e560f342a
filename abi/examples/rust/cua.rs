// SPDX-License-Identifier: Apache-2.0
//! libcua in Rust, opened with dlopen: the standard library alone. A module to be copied.
//!
//! ```ignore
//! let library = unsafe { cua::Library::open("libcua_cpu.so") }?;
//! let engine = library.open_engine("model", &cua::Options::default())?;
//! let score = engine.score(&cua::Prompt::text("A or B?", 2))?;
//! println!("{} {:?}", score.letter(), score.probabilities);
//! ```
#![allow(dead_code)] // a program need not use all of it

use std::ffi::{CStr, CString};
use std::fmt;
use std::mem::{size_of, transmute_copy};
use std::os::raw::{c_char, c_int, c_void};
use std::ptr::{null, null_mut, NonNull};

pub const ABI_MAJOR: u32 = 4;
pub const ABI_MINOR: u32 = 0;

/// Result codes. A later library may have more, so they are numbers.
pub mod code {
    pub const INVALID_ARGUMENT: i32 = 1;
    pub const ABI_MISMATCH: i32 = 2;
    pub const BAD_MODEL: i32 = 3;
    pub const NO_DEVICE: i32 = 4;
    pub const OUT_OF_MEMORY: i32 = 5;
    pub const PROMPT_TOO_LONG: i32 = 6;
    pub const DEVICE_FAILED: i32 = 7;
    pub const UNSUPPORTED: i32 = 8;
    pub const BUFFER_TOO_SMALL: i32 = 9;
    pub const NOT_FINITE: i32 = 10;
    pub const INTERNAL: i32 = 99;
}

/// `code` is what a program decides by; the message says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: i32,
    pub message: String,
    /// With BUFFER_TOO_SMALL, the size that is enough.
    pub needed: u64,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    #[default]
    Off = 0,
    Exact = 1,
    Bucket = 2,
}

/// Zero and empty are the library's defaults; cua.h says what each is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub device: i32,
    pub max_prompt_tokens: u32,
    pub max_batch_tokens: u32,
    pub graph_mode: GraphMode,
    pub graph_capacity: u32,
    pub threads: u32,
    pub precision: u32,
    pub prefix: String,
    pub plans: String,
}

#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Text(&'a str),
    Ids(&'a [u32]),
}

/// A text or token ids, of which `options` letters are in use.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    content: Content<'a>,
    options: u32,
}

impl<'a> Prompt<'a> {
    pub fn text(text: &'a str, options: u32) -> Self {
        Prompt {
            content: Content::Text(text),
            options,
        }
    }

    pub fn ids(ids: &'a [u32], options: u32) -> Self {
        Prompt {
            content: Content::Ids(ids),
            options,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    pub best: usize,
    pub tokens: u64,
    pub flags: u32,
    /// Of A to Z.
    pub logits: [f32; 26],
    /// Of the options in use.
    pub probabilities: Vec<f32>,
}

impl Score {
    pub fn letter(&self) -> char {
        (b'A' + self.best as u8) as char
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub forwards: u64,
    pub prompts: u64,
    pub tokens: u64,
    pub captures: u64,
    pub replays: u64,
    pub evictions: u64,
    pub fallbacks: u64,
    pub scratch_bytes: u64,
    pub device_bytes: u64,
}

/// The structs and functions of cua.h.
mod raw {
    use super::{c_char, c_void, size_of};

    #[repr(C)]
    pub struct Engine {
        _opaque: [u8; 0],
    }

    #[repr(C)]
    pub struct Error {
        pub struct_size: u32,
        pub code: i32,
        pub message: [c_char; 1024],
    }

    #[repr(C)]
    pub struct Options {
        pub struct_size: u32,
        pub device: i32,
        pub model_dir: *const c_char,
        pub model_dir_length: u64,
        pub max_prompt_tokens: u32,
        pub max_batch_tokens: u32,
        pub graph_mode: u32,
        pub graph_capacity: u32,
        pub log: *const c_void,
        pub log_user: *mut c_void,
        pub threads: u32,
        pub precision: u32,
        pub prefix: *const c_char,
        pub prefix_length: u64,
        pub plans: *const c_char,
        pub plans_length: u64,
    }

    #[repr(C)]
    pub struct Prompt {
        pub struct_size: u32,
        pub n_options: u32,
        pub ids: *const u32,
        pub n_ids: u64,
        pub text: *const c_char,
        pub text_length: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Score {
        pub struct_size: u32,
        pub best: u32,
        pub n_ids: u64,
        pub flags: u32,
        pub reserved: u32,
        pub logits: [f32; 26],
        pub probabilities: [f32; 26],
    }

    #[repr(C)]
    pub struct Stats {
        pub struct_size: u32,
        pub reserved: u32,
        pub counters: [u64; 9],
    }

    const _: () = assert!(size_of::<Error>() == 1032 && size_of::<Options>() == 96);
    const _: () = assert!(size_of::<Prompt>() == 40 && size_of::<Score>() == 232);
    const _: () = assert!(size_of::<Stats>() == 80);

    pub type Version = unsafe extern "C" fn() -> u32;
    pub type BuildInfo = unsafe extern "C" fn() -> *const c_char;
    pub type Create = unsafe extern "C" fn(*const Options, *mut *mut Engine, *mut Error) -> i32;
    pub type Destroy = unsafe extern "C" fn(*mut Engine);
    pub type Describe =
        unsafe extern "C" fn(*const Engine, *mut c_char, u64, *mut u64, *mut Error) -> i32;
    pub type Tokenize = unsafe extern "C" fn(
        *const Engine,
        *const c_char,
        u64,
        *mut u32,
        u64,
        *mut u64,
        *mut Error,
    ) -> i32;
    pub type ScorePrompts =
        unsafe extern "C" fn(*mut Engine, *const Prompt, u32, *mut Score, *mut Error) -> i32;
    pub type SetGraphMode = unsafe extern "C" fn(*mut Engine, u32, *mut Error) -> i32;
    pub type EngineStats = unsafe extern "C" fn(*const Engine, *mut Stats, *mut Error) -> i32;
}

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
    fn dlerror() -> *const c_char;
}
const RTLD_NOW: c_int = 2; // RTLD_LOCAL is 0

fn refusal(code: i32, message: String) -> Error {
    Error {
        code,
        message,
        needed: 0,
    }
}

fn as_text(text: &str) -> *const c_char {
    text.as_ptr().cast()
}

/// Calls with an error to fill, and turns its code into a Result.
fn check(call: impl FnOnce(*mut raw::Error) -> i32) -> Result<(), Error> {
    let size = size_of::<raw::Error>() as u32;
    let mut error = raw::Error {
        struct_size: size,
        code: 0,
        message: [0; 1024],
    };
    let code = call(&mut error);
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library terminates the message, and it was all zeros before.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err(refusal(code, message.to_string_lossy().into_owned()))
}

/// The functions of an opened libcua, which stays open until the process ends: the CUDA runtime
/// cannot be unloaded, and so a copy of this is as good as the first.
#[derive(Clone, Copy)]
pub struct Library {
    version: raw::Version,
    build_info: raw::BuildInfo,
    create: raw::Create,
    destroy: raw::Destroy,
    describe: raw::Describe,
    tokenize: raw::Tokenize,
    score_prompts: raw::ScorePrompts,
    set_graph_mode: raw::SetGraphMode,
    engine_stats: raw::EngineStats,
}

impl Library {
    /// Errors: ABI_MISMATCH for another version, INVALID_ARGUMENT for what cannot be loaded or is
    /// not libcua.
    ///
    /// # Safety
    /// Loading a library runs its code, and what has the names of cua.h is taken to be it.
    pub unsafe fn open(path: &str) -> Result<Library, Error> {
        let name = CString::new(path)
            .map_err(|_| refusal(code::INVALID_ARGUMENT, "the path holds a NUL byte".into()))?;
        let handle = dlopen(name.as_ptr(), RTLD_NOW);
        if handle.is_null() {
            let message = CStr::from_ptr(dlerror()).to_string_lossy().into_owned();
            return Err(refusal(code::INVALID_ARGUMENT, message));
        }
        let library = Library::of_handle(handle, path);
        if library.is_err() {
            dlclose(handle);
        }
        library
    }

    unsafe fn of_handle(handle: *mut c_void, path: &str) -> Result<Library, Error> {
        // The version first: another major may lack the others.
        let version: raw::Version = function(handle, path, "cua_abi_version")?;
        let (major, minor) = (version() >> 16, version() & 0xffff);
        if major != ABI_MAJOR {
            return Err(refusal(
                code::ABI_MISMATCH,
                format!(
                    "refusing {path}: its ABI is {major}.{minor}, this program needs \
                     {ABI_MAJOR}.{ABI_MINOR}; use a library and a program of the same major version"
                ),
            ));
        }
        #[allow(clippy::absurd_extreme_comparisons, unused_comparisons)]
        // until the minor is over 0
        if minor < ABI_MINOR {
            return Err(refusal(
                code::ABI_MISMATCH,
                format!(
                    "refusing {path}: its ABI {major}.{minor} is older than the \
                     {ABI_MAJOR}.{ABI_MINOR} that this program needs; update the library"
                ),
            ));
        }
        Ok(Library {
            version,
            build_info: function(handle, path, "cua_build_info")?,
            create: function(handle, path, "cua_engine_create")?,
            destroy: function(handle, path, "cua_engine_destroy")?,
            describe: function(handle, path, "cua_engine_describe")?,
            tokenize: function(handle, path, "cua_tokenize")?,
            score_prompts: function(handle, path, "cua_score_prompts")?,
            set_graph_mode: function(handle, path, "cua_set_graph_mode")?,
            engine_stats: function(handle, path, "cua_engine_stats")?,
        })
    }

    /// Major and minor.
    pub fn version(&self) -> (u32, u32) {
        // SAFETY: it can be called at any time; so can the next.
        let version = unsafe { (self.version)() };
        (version >> 16, version & 0xffff)
    }

    /// JSON.
    pub fn build_info(&self) -> String {
        unsafe { CStr::from_ptr((self.build_info)()) }
            .to_string_lossy()
            .into_owned()
    }

    /// Loads a model.
    pub fn open_engine(&self, model_dir: &str, options: &Options) -> Result<Engine, Error> {
        let given = raw::Options {
            struct_size: size_of::<raw::Options>() as u32,
            device: options.device,
            model_dir: as_text(model_dir),
            model_dir_length: model_dir.len() as u64,
            max_prompt_tokens: options.max_prompt_tokens,
            max_batch_tokens: options.max_batch_tokens,
            graph_mode: options.graph_mode as u32,
            graph_capacity: options.graph_capacity,
            log: null(),
            log_user: null_mut(),
            threads: options.threads,
            precision: options.precision,
            prefix: as_text(&options.prefix),
            prefix_length: options.prefix.len() as u64,
            plans: as_text(&options.plans),
            plans_length: options.plans.len() as u64,
        };
        let mut handle = null_mut();
        // SAFETY: the options and their strings live until the call has ended.
        check(|error| unsafe { (self.create)(&given, &mut handle, error) })?;
        let handle = NonNull::new(handle).expect("an engine, where there is no error");
        Ok(Engine {
            library: *self,
            handle,
        })
    }
}

/// The function `name`, of the type that the caller wants.
unsafe fn function<F>(handle: *mut c_void, path: &str, name: &str) -> Result<F, Error> {
    let terminated = CString::new(name).expect("a name without NUL");
    let symbol = dlsym(handle, terminated.as_ptr());
    if symbol.is_null() {
        let message = format!("refusing {path}: it has no {name}; is it libcua?");
        return Err(refusal(code::INVALID_ARGUMENT, message));
    }
    Ok(transmute_copy(&symbol))
}

/// A loaded model; dropping it frees it.
pub struct Engine {
    library: Library,
    handle: NonNull<raw::Engine>,
}

// SAFETY: an engine belongs to no thread, and the library keeps nothing per thread (cua.h, Threads):
// it may be made on one and freed on another.
unsafe impl Send for Engine {}
// SAFETY: any thread may call any function on it at any time. Only cua_engine_destroy must have no
// other call beside it; it is called by drop alone, when no reference is left.
unsafe impl Sync for Engine {}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the engine any more.
        unsafe { (self.library.destroy)(self.handle.as_ptr()) }
    }
}

impl Engine {
    pub fn score(&self, prompt: &Prompt) -> Result<Score, Error> {
        Ok(self.score_batch(std::slice::from_ref(prompt))?.remove(0))
    }

    /// In as few forward passes as can be. Each prompt gets the answer that it gets alone.
    pub fn score_batch(&self, prompts: &[Prompt]) -> Result<Vec<Score>, Error> {
        let given: Vec<raw::Prompt> = prompts.iter().map(raw_prompt).collect();
        let empty = raw::Score {
            struct_size: size_of::<raw::Score>() as u32,
            best: 0,
            n_ids: 0,
            flags: 0,
            reserved: 0,
            logits: [0.0; 26],
            probabilities: [0.0; 26],
        };
        let mut scores = vec![empty; prompts.len()];
        let n = u32::try_from(prompts.len()).expect("fewer than 2^32 prompts");
        // SAFETY: `prompts` borrows the texts and ids; the arrays have n elements.
        check(|error| unsafe {
            (self.library.score_prompts)(
                self.handle.as_ptr(),
                given.as_ptr(),
                n,
                scores.as_mut_ptr(),
                error,
            )
        })?;
        let of = |(prompt, score): (&Prompt, &raw::Score)| Score {
            best: score.best as usize,
            tokens: score.n_ids,
            flags: score.flags,
            logits: score.logits,
            probabilities: score.probabilities[..prompt.options as usize].to_vec(),
        };
        Ok(prompts.iter().zip(&scores).map(of).collect())
    }

    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, Error> {
        match self.tokenize_into(text, &mut []) {
            Err(error) if error.code == code::BUFFER_TOO_SMALL => {
                let mut ids = vec![0; error.needed as usize];
                self.tokenize_into(text, &mut ids)?;
                Ok(ids)
            }
            Err(error) => Err(error),
            Ok(_) => Ok(Vec::new()),
        }
    }

    /// Writes the ids into `ids` and gives their number; BUFFER_TOO_SMALL if it is too short.
    pub fn tokenize_into(&self, text: &str, ids: &mut [u32]) -> Result<usize, Error> {
        let mut count = 0;
        let (length, capacity) = (text.len() as u64, ids.len() as u64);
        let to = ids.as_mut_ptr();
        // SAFETY: at most `capacity` ids are written.
        let result = check(|error| unsafe {
            (self.library.tokenize)(
                self.handle.as_ptr(),
                as_text(text),
                length,
                to,
                capacity,
                &mut count,
                error,
            )
        });
        result.map(|()| count as usize).map_err(|error| Error {
            needed: count,
            ..error
        })
    }

    /// JSON.
    pub fn describe(&self) -> Result<String, Error> {
        let (engine, call) = (self.handle.as_ptr(), self.library.describe);
        let mut needed = 0;
        // SAFETY: with capacity 0 the size alone is written; then at most `needed` bytes.
        unsafe { call(engine, null_mut(), 0, &mut needed, null_mut()) };
        let mut json = vec![0u8; needed as usize];
        let to = json.as_mut_ptr();
        check(|error| unsafe { call(engine, to.cast(), needed, &mut needed, error) })?;
        Ok(String::from_utf8_lossy(&json).into_owned())
    }

    pub fn set_graph_mode(&self, mode: GraphMode) -> Result<(), Error> {
        // SAFETY: the engine lives as long as self; so it is below.
        check(|error| unsafe {
            (self.library.set_graph_mode)(self.handle.as_ptr(), mode as u32, error)
        })
    }

    pub fn stats(&self) -> Result<Stats, Error> {
        let size = size_of::<raw::Stats>() as u32;
        let mut stats = raw::Stats {
            struct_size: size,
            reserved: 0,
            counters: [0; 9],
        };
        check(|error| unsafe {
            (self.library.engine_stats)(self.handle.as_ptr(), &mut stats, error)
        })?;
        let [forwards, prompts, tokens, captures, replays, evictions, fallbacks, scratch_bytes, device_bytes] =
            stats.counters;
        Ok(Stats {
            forwards,
            prompts,
            tokens,
            captures,
            replays,
            evictions,
            fallbacks,
            scratch_bytes,
            device_bytes,
        })
    }
}

fn raw_prompt(prompt: &Prompt) -> raw::Prompt {
    let (ids, n_ids, text, text_length) = match prompt.content {
        Content::Text(text) => (null(), 0, as_text(text), text.len() as u64),
        Content::Ids(ids) => (ids.as_ptr(), ids.len() as u64, null(), 0),
    };
    raw::Prompt {
        struct_size: size_of::<raw::Prompt>() as u32,
        n_options: prompt.options,
        ids,
        n_ids,
        text,
        text_length,
    }
}
