// SPDX-License-Identifier: Apache-2.0

// Package cua is libcua in Go, opened with dlopen.
//
// It uses cgo: a dlopen without it needs calls of C functions in assembly for each architecture, which
// Go's runtime may break with a release, or a module from the network that does just that. dlopen, and
// not linking, so that a program chooses between libcua.so and libcua_cpu.so while it runs.
//
// Any goroutine may call anything at any time, and move to another thread between calls: the library
// keeps nothing per thread, and each call has its own room for the error's text. Close waits for the
// calls that are under way.
package cua

/*
#cgo CFLAGS: -std=c99 -I${SRCDIR}/../../.. -I${SRCDIR}/../../c
#cgo LDFLAGS: -ldl
#include <stdlib.h>

#include "cua_library.h"

// Go cannot call a pointer to a function.
static uint32_t version_of(const cua_library *cua) { return cua->abi_version(); }
static const char *build_info_of(const cua_library *cua) { return cua->build_info(); }
static int32_t create(const cua_library *cua, const cua_engine_options *options,
                      cua_engine **engine, cua_error *error) {
	return cua->engine_create(options, engine, error);
}
static void destroy(const cua_library *cua, cua_engine *engine) { cua->engine_destroy(engine); }
static int32_t describe(const cua_library *cua, const cua_engine *engine, char *json,
                        uint64_t capacity, uint64_t *needed, cua_error *error) {
	return cua->engine_describe(engine, json, capacity, needed, error);
}
static int32_t tokenize(const cua_library *cua, const cua_engine *engine, const char *text,
                        uint64_t length, uint32_t *ids, uint64_t capacity, uint64_t *count,
                        cua_error *error) {
	return cua->tokenize(engine, text, length, ids, capacity, count, error);
}
static int32_t score(const cua_library *cua, cua_engine *engine, const cua_prompt *prompts,
                     uint32_t n, cua_score *scores, cua_error *error) {
	return cua->score_prompts(engine, prompts, n, scores, error);
}
static int32_t set_graph_mode(const cua_library *cua, cua_engine *engine, uint32_t mode,
                              cua_error *error) {
	return cua->set_graph_mode(engine, mode, error);
}
static int32_t stats(const cua_library *cua, const cua_engine *engine, cua_stats *stats,
                     cua_error *error) {
	return cua->engine_stats(engine, stats, error);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Result codes. A later library may have more.
const (
	InvalidArgument = 1
	ABIMismatch     = 2
	BadModel        = 3
	NoDevice        = 4
	OutOfMemory     = 5
	PromptTooLong   = 6
	DeviceFailed    = 7
	Unsupported     = 8
	BufferTooSmall  = 9
	NotFinite       = 10
	Internal        = 99
)

// Graph modes.
const (
	GraphOff    = 0
	GraphExact  = 1
	GraphBucket = 2
)

// ErrClosed is the error of a call on a closed engine.
var ErrClosed = errors.New("the engine is closed")

// Error is a failure that the library tells of. Code is what a program decides by; Message says what
// is wrong and what to do. With BufferTooSmall, Needed is the size that is enough.
type Error struct {
	Code    int
	Message string
	Needed  uint64
}

func (e *Error) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// Options of an engine. Zero is the library's default everywhere; cua.h says what each is.
type Options struct {
	Device          int
	MaxPromptTokens uint32
	MaxBatchTokens  uint32
	GraphMode       uint32
	GraphCapacity   uint32
	Threads         uint32
	Precision       uint32
	Prefix          string
	Plans           string
}

// Prompt is token ids or, where IDs is nil, a text. Options letters are in use.
type Prompt struct {
	Text    string
	IDs     []uint32
	Options uint32
}

// Score is the answer to a prompt.
type Score struct {
	Best          int
	Tokens        uint64
	Flags         uint32
	Logits        [26]float32 // of A to Z
	Probabilities []float32   // of the options in use
}

// Letter of the best option.
func (s *Score) Letter() string { return string(rune('A' + s.Best)) }

// Stats counts since the engine was made.
type Stats struct {
	Forwards, Prompts, Tokens, Captures, Replays, Evictions, Fallbacks, ScratchBytes, DeviceBytes uint64
}

// Library is an opened libcua. It stays open until the process ends: the CUDA runtime cannot be
// unloaded.
type Library struct {
	functions C.cua_library
}

// room for an error's text.
func newError() C.cua_error {
	var e C.cua_error
	e.struct_size = C.uint32_t(unsafe.Sizeof(e))
	return e
}

func check(code C.int32_t, e *C.cua_error) error {
	if code == C.CUA_OK {
		return nil
	}
	return &Error{Code: int(code), Message: C.GoString(&e.message[0])}
}

// Open loads the library at path. Errors: ABIMismatch for another version, InvalidArgument for what
// cannot be loaded or is not libcua.
func Open(path string) (*Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	library, e := new(Library), newError()
	if err := check(C.cua_library_open(name, &library.functions, &e), &e); err != nil {
		return nil, err
	}
	return library, nil
}

// Version gives major and minor.
func (l *Library) Version() (major, minor uint32) {
	version := uint32(C.version_of(&l.functions))
	return version >> 16, version & 0xffff
}

// BuildInfo is JSON.
func (l *Library) BuildInfo() string { return C.GoString(C.build_info_of(&l.functions)) }

// arena holds copies that C may keep for the length of a call: what Go hands to C must not point at
// Go's memory.
type arena []unsafe.Pointer

func (a *arena) text(s string) (*C.char, C.uint64_t) {
	at := C.CString(s)
	*a = append(*a, unsafe.Pointer(at))
	return at, C.uint64_t(len(s))
}

func (a *arena) ids(ids []uint32) (*C.uint32_t, C.uint64_t) {
	at := C.malloc(C.size_t(len(ids)*4 + 1)) // + 1: not NULL, which would be a text
	*a = append(*a, at)
	copy(unsafe.Slice((*uint32)(at), len(ids)), ids)
	return (*C.uint32_t)(at), C.uint64_t(len(ids))
}

func (a *arena) free() {
	for _, at := range *a {
		C.free(at)
	}
}

// Engine is a loaded model.
type Engine struct {
	library *Library
	mutex   sync.RWMutex // held for reading by every call, so that Close waits for them
	handle  *C.cua_engine
}

// Open loads a model. The caller closes the engine.
func (l *Library) Open(modelDir string, options Options) (*Engine, error) {
	var memory arena
	defer memory.free()
	var o C.cua_engine_options
	o.struct_size = C.uint32_t(unsafe.Sizeof(o))
	o.device = C.int32_t(options.Device)
	o.model_dir, o.model_dir_length = memory.text(modelDir)
	o.max_prompt_tokens = C.uint32_t(options.MaxPromptTokens)
	o.max_batch_tokens = C.uint32_t(options.MaxBatchTokens)
	o.graph_mode = C.uint32_t(options.GraphMode)
	o.graph_capacity = C.uint32_t(options.GraphCapacity)
	o.threads = C.uint32_t(options.Threads)
	o.precision = C.uint32_t(options.Precision)
	o.prefix, o.prefix_length = memory.text(options.Prefix)
	o.plans, o.plans_length = memory.text(options.Plans)
	engine, e := &Engine{library: l}, newError()
	if err := check(C.create(&l.functions, &o, &engine.handle, &e), &e); err != nil {
		return nil, err
	}
	return engine, nil
}

// Close waits for the calls under way and frees the model. Twice is fine.
func (e *Engine) Close() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	C.destroy(&e.library.functions, e.handle)
	e.handle = nil
}

// call runs a call of the library on the open engine.
func (e *Engine) call(function func(*C.cua_library, *C.cua_engine, *C.cua_error) C.int32_t) error {
	e.mutex.RLock()
	defer e.mutex.RUnlock()
	if e.handle == nil {
		return ErrClosed
	}
	room := newError()
	return check(function(&e.library.functions, e.handle, &room), &room)
}

// Score scores one prompt.
func (e *Engine) Score(prompt Prompt) (*Score, error) {
	scores, err := e.ScoreBatch([]Prompt{prompt})
	if err != nil {
		return nil, err
	}
	return &scores[0], nil
}

// ScoreBatch scores prompts in as few forward passes as can be. Each gets the answer that it gets alone.
func (e *Engine) ScoreBatch(prompts []Prompt) ([]Score, error) {
	if len(prompts) == 0 {
		return nil, nil
	}
	var memory arena
	defer memory.free()
	given, got := make([]C.cua_prompt, len(prompts)), make([]C.cua_score, len(prompts))
	for i, prompt := range prompts {
		given[i].struct_size = C.uint32_t(unsafe.Sizeof(given[i]))
		given[i].n_options = C.uint32_t(prompt.Options)
		if prompt.IDs != nil {
			given[i].ids, given[i].n_ids = memory.ids(prompt.IDs)
		} else {
			given[i].text, given[i].text_length = memory.text(prompt.Text)
		}
		got[i].struct_size = C.uint32_t(unsafe.Sizeof(got[i]))
	}
	err := e.call(func(l *C.cua_library, handle *C.cua_engine, room *C.cua_error) C.int32_t {
		return C.score(l, handle, &given[0], C.uint32_t(len(given)), &got[0], room)
	})
	if err != nil {
		return nil, err
	}
	scores := make([]Score, len(prompts))
	for i := range got {
		from, to := &got[i], &scores[i]
		to.Best, to.Tokens, to.Flags = int(from.best), uint64(from.n_ids), uint32(from.flags)
		to.Probabilities = make([]float32, prompts[i].Options)
		for j := range to.Logits {
			to.Logits[j] = float32(from.logits[j])
		}
		for j := range to.Probabilities {
			to.Probabilities[j] = float32(from.probabilities[j])
		}
	}
	return scores, nil
}

// Tokenize gives the ids of a text.
func (e *Engine) Tokenize(text string) ([]uint32, error) {
	_, err := e.TokenizeInto(text, nil)
	var short *Error
	if err == nil {
		return []uint32{}, nil
	} else if !errors.As(err, &short) || short.Code != BufferTooSmall {
		return nil, err
	}
	ids := make([]uint32, short.Needed)
	n, err := e.TokenizeInto(text, ids)
	return ids[:n], err
}

// TokenizeInto writes the ids into ids and gives their number; BufferTooSmall if it is too short.
func (e *Engine) TokenizeInto(text string, ids []uint32) (int, error) {
	var memory arena
	defer memory.free()
	at, length := memory.text(text)
	var to *C.uint32_t
	if len(ids) > 0 {
		to = (*C.uint32_t)(&ids[0])
	}
	var count C.uint64_t
	err := e.call(func(l *C.cua_library, handle *C.cua_engine, room *C.cua_error) C.int32_t {
		return C.tokenize(l, handle, at, length, to, C.uint64_t(len(ids)), &count, room)
	})
	var short *Error
	if errors.As(err, &short) && short.Code == BufferTooSmall {
		short.Needed = uint64(count)
	}
	if err != nil {
		return 0, err
	}
	return int(count), nil
}

// Describe gives JSON.
func (e *Engine) Describe() (string, error) {
	json := make([]C.char, 4096)
	for {
		var needed C.uint64_t
		err := e.call(func(l *C.cua_library, handle *C.cua_engine, room *C.cua_error) C.int32_t {
			return C.describe(l, handle, &json[0], C.uint64_t(len(json)), &needed, room)
		})
		var short *Error
		if errors.As(err, &short) && short.Code == BufferTooSmall {
			json = make([]C.char, needed)
			continue
		} else if err != nil {
			return "", err
		}
		return C.GoStringN(&json[0], C.int(needed)), nil
	}
}

// SetGraphMode changes how the CUDA library uses graphs.
func (e *Engine) SetGraphMode(mode uint32) error {
	return e.call(func(l *C.cua_library, handle *C.cua_engine, room *C.cua_error) C.int32_t {
		return C.set_graph_mode(l, handle, C.uint32_t(mode), room)
	})
}

// Stats reads the counters; it does not wait for a running forward pass.
func (e *Engine) Stats() (Stats, error) {
	var s C.cua_stats
	s.struct_size = C.uint32_t(unsafe.Sizeof(s))
	err := e.call(func(l *C.cua_library, handle *C.cua_engine, room *C.cua_error) C.int32_t {
		return C.stats(l, handle, &s, room)
	})
	return Stats{uint64(s.forwards), uint64(s.prompts), uint64(s.tokens), uint64(s.captures), uint64(s.replays),
		uint64(s.evictions), uint64(s.fallbacks), uint64(s.scratch_bytes), uint64(s.device_bytes)}, err
}
