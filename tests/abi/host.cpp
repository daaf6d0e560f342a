// SPDX-License-Identifier: Apache-2.0
//
// A host of the awkward kind: it has every name that the library has inside (inner_names.py), its
// own malloc and operator new, opens the library with RTLD_GLOBAL, and is, case by case, in a state
// in which few programs are. The library gives the same answers, and leaves the process as it found
// it.
//   host LIBRARY IDS_MODEL TEXT_MODEL CASE
#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <locale>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host_allocator.h"
#include "open_library.h"

namespace {

const char *library_path, *ids_model, *text_model;
constexpr int kHow = RTLD_NOW | RTLD_GLOBAL;

// ---- what a host sees of the library
// ---------------------------------------------------------------

struct Answers {
  std::vector<cua_score> scores;
  std::vector<uint32_t> tokens;
  std::vector<std::string> messages;
  bool operator==(const Answers &other) const {
    return tokens == other.tokens && messages == other.messages &&
           scores.size() == other.scores.size() &&
           std::memcmp(scores.data(), other.scores.data(), scores.size() * sizeof(cua_score)) == 0;
  }
};

cua_engine *open_engine(const char *model) {
  cua_engine_options options{};
  options.struct_size = sizeof options;
  options.model_dir = model;
  options.model_dir_length = std::strlen(model);
  options.threads = 2;
  cua_error error{};
  error.struct_size = sizeof error;
  cua_engine *engine = nullptr;
  if (create(&options, &engine, &error) != CUA_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    std::exit(1);
  }
  return engine;
}

const char *const texts[] = {"One of A, B and C: \xe2\x82\xac 12,345.67?",
                             "e\xcc\x81t\xc3\xa9 I\xc4\xb0i\xc4\xb1",
                             "\xed\x95\x9c \xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab <|im_start|>"};

// Scores of ids and text, alone and together, tokens, and messages with numbers in them.
Answers ask(cua_engine *ids_engine, cua_engine *text_engine) {
  Answers answers;
  std::array<uint32_t, 70> ids;
  for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = (i * 37 + 11) % 512;
  std::array<cua_prompt, 4> prompts{};
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i].struct_size = sizeof prompts[i];
    prompts[i].n_options = static_cast<uint32_t>(3 + i);
    if (i < std::size(texts)) {
      prompts[i].text = texts[i];
      prompts[i].text_length = std::strlen(texts[i]);
    } else {
      prompts[i].ids = ids.data();
      prompts[i].n_ids = ids.size();
    }
  }
  std::array<cua_score, prompts.size() + 1> scores{};
  for (cua_score &score : scores) score.struct_size = sizeof score;
  REQUIRE(score(text_engine, prompts.data(), prompts.size(), scores.data(), nullptr) == CUA_OK);
  REQUIRE(score(ids_engine, &prompts.back(), 1, &scores.back(), nullptr) == CUA_OK);
  answers.scores.assign(scores.begin(), scores.end());
  for (const char *const text : texts) {
    uint64_t count = 0;
    std::array<uint32_t, 100> tokens;
    REQUIRE(tokenize(text_engine, text, std::strlen(text), tokens.data(), tokens.size(), &count,
                     nullptr) == CUA_OK);
    answers.tokens.insert(answers.tokens.end(), tokens.begin(),
                          tokens.begin() + static_cast<ptrdiff_t>(count));
  }

  cua_error error{};
  error.struct_size = sizeof error;
  ids[0] = 1234567;
  REQUIRE(score(ids_engine, &prompts.back(), 1, scores.data(), &error) == CUA_INVALID_ARGUMENT);
  answers.messages.push_back(error.message);
  cua_engine_options options{};
  options.struct_size = sizeof options;
  options.model_dir = "/nowhere/at/all";
  options.model_dir_length = 15;
  cua_engine *none = nullptr;
  REQUIRE(create(&options, &none, &error) == CUA_BAD_MODEL && none == nullptr);
  answers.messages.push_back(error.message);
  std::array<char, 4096> json;
  uint64_t length = 0;
  REQUIRE(describe(text_engine, json.data(), json.size(), &length, nullptr) == CUA_OK);
  answers.messages.emplace_back(json.data(), length);
  return answers;
}

// Both models' whole life.
Answers life() {
  cua_engine *const ids_engine = open_engine(ids_model);
  cua_engine *const text_engine = open_engine(text_model);
  Answers answers = ask(ids_engine, text_engine);
  destroy(ids_engine);
  destroy(text_engine);
  return answers;
}

// ---- what the library must leave as it is
// ----------------------------------------------------------

size_t entries(const char *folder) {
  size_t count = 0;
  DIR *const stream = opendir(folder);
  REQUIRE(stream != nullptr);
  while (readdir(stream) != nullptr) ++count;
  closedir(stream);
  return count;
}

struct ProcessState {
  sigset_t mask;
  std::array<struct sigaction, 32> actions;
  fenv_t floating_point;
  uint32_t mxcsr;
  std::string locale, folder;
  mode_t umask_bits;
  size_t descriptors, threads;
  std::vector<std::string> environment;
  rlimit stack, files;

  ProcessState() {
    std::memset(&floating_point, 0, sizeof floating_point);
    std::memset(&mask, 0, sizeof mask);
    std::memset(&actions, 0, sizeof actions);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (int signal = 1; signal < 32; ++signal) {
      sigaction(signal, nullptr, &actions[static_cast<size_t>(signal)]);
    }
    mxcsr = _mm_getcsr();
    fegetenv(&floating_point);
    locale = std::setlocale(LC_ALL, nullptr);
    std::array<char, 4096> path;
    folder = getcwd(path.data(), path.size());
    umask_bits = umask(0);
    umask(umask_bits);
    descriptors = entries("/proc/self/fd");
    threads = entries("/proc/self/task");
    for (char **variable = environ; *variable != nullptr; ++variable)
      environment.push_back(*variable);
    getrlimit(RLIMIT_STACK, &stack);
    getrlimit(RLIMIT_NOFILE, &files);
  }

  void check(const ProcessState &now) const {
    REQUIRE(std::memcmp(&mask, &now.mask, sizeof mask) == 0);
    for (size_t i = 1; i < actions.size(); ++i) {
      REQUIRE(actions[i].sa_handler == now.actions[i].sa_handler &&
              actions[i].sa_flags == now.actions[i].sa_flags);
    }
    REQUIRE(mxcsr == now.mxcsr);
    REQUIRE(floating_point.__control_word == now.floating_point.__control_word);
    REQUIRE(floating_point.__status_word == now.floating_point.__status_word);
    REQUIRE(locale == now.locale && folder == now.folder && umask_bits == now.umask_bits);
    REQUIRE(descriptors == now.descriptors);
    REQUIRE(threads == now.threads);
    REQUIRE(environment == now.environment);
    REQUIRE(std::memcmp(&stack, &now.stack, sizeof stack) == 0 &&
            std::memcmp(&files, &now.files, sizeof files) == 0);
  }
};

// The same answers, and the process as before.
void undisturbed(const Answers &expected) {
  const ProcessState before;
  const Answers answers = life();
  before.check(ProcessState());
  REQUIRE(answers == expected);
}

bool mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libcua") != line.npos) return true;
  }
  return false;
}

// In a child, which must end with 0.
void in_child(const std::function<void()> &body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    std::exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// ---- the cases
// -------------------------------------------------------------------------------------

void names() {
  open_library(library_path, kHow);
  const Answers first = life();
  REQUIRE(first.tokens.size() > 20 && first.scores[0].logits[0] != first.scores[1].logits[0]);
  undisturbed(first);
}

void reopen() {
  std::vector<long> blocks;
  Answers first;
  // A thread that has called the library and lives on must not keep it.
  std::mutex mutex;
  std::condition_variable changed;
  int asked = 0, answered = 0;
  std::thread caller([&] {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return asked != answered; });
      if (asked < 0) return;
      undisturbed(first);
      ++answered;
      changed.notify_all();
    }
  });
  for (int round = 0; round < 6; ++round) {
    void *const library =
        open_library(library_path, round % 2 == 0 ? kHow : RTLD_LAZY | RTLD_LOCAL);
    Answers answers = life();
    REQUIRE(round == 0 || answers == first);
    first = std::move(answers);
    if (round % 3 == 0) {
      std::unique_lock lock(mutex);
      ++asked;
      changed.notify_all();
      changed.wait(lock, [&] { return asked == answered; });
    }
    REQUIRE(dlclose(library) == 0);
    REQUIRE(!mapped());
    REQUIRE(entries("/proc/self/task") == 4);  // with . and ..
    blocks.push_back(live_blocks());
  }
  {
    const std::lock_guard lock(mutex);
    asked = -1;
  }
  changed.notify_all();
  caller.join();
  blocks.pop_back();  // reserve of `blocks` itself
  REQUIRE(std::equal(blocks.begin() + 2, blocks.end(), blocks.begin() + 1));
}

void small_stack() {
  open_library(library_path, kHow);
  const Answers first = life();
  constexpr size_t kStack = 256 << 10;
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  // The library's own threads get no more either.
  REQUIRE(pthread_attr_setstacksize(&attributes, kStack) == 0 &&
          pthread_setattr_default_np(&attributes) == 0);
  void *const stack =
      mmap(nullptr, kStack + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(stack != MAP_FAILED && mprotect(stack, 4096, PROT_NONE) == 0);
  auto *const bottom = static_cast<unsigned char *>(stack) + 4096;
  std::memset(bottom, 0xa5, kStack);
  REQUIRE(pthread_attr_setstack(&attributes, bottom, kStack) == 0);
  pthread_t thread;
  const auto body = [](void *expected) -> void * {
    undisturbed(*static_cast<const Answers *>(expected));
    cua_engine *const engine = open_engine(text_model);
    // What is hard on a regular expression, on NFC and on the merges: long runs without a seam.
    std::string blanks(100000, ' '), marks, letters(100000, 'a');
    for (int i = 0; i < 50000; ++i) marks += "\xcc\x81";
    for (const std::string &text :
         {blanks, marks, letters, blanks + "\n" + letters + "1" + marks}) {
      uint64_t count = 0;
      REQUIRE(tokenize(engine, text.data(), text.size(), nullptr, 0, &count, nullptr) ==
              CUA_BUFFER_TOO_SMALL);
    }
    std::vector<uint32_t> ids(2048, 5);
    cua_prompt prompt{};
    prompt.struct_size = sizeof prompt;
    prompt.n_options = 26;
    prompt.ids = ids.data();
    prompt.n_ids = ids.size();
    cua_score result{};
    result.struct_size = sizeof result;
    REQUIRE(score(engine, &prompt, 1, &result, nullptr) == CUA_OK);
    destroy(engine);
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, body, const_cast<Answers *>(&first)) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  const unsigned char *const used =
      std::find_if(bottom, bottom + kStack, [](unsigned char c) { return c != 0xa5; });
  std::printf("%zu of %zu bytes of stack used\n", static_cast<size_t>(bottom + kStack - used),
              kStack);
}

void after_fork() {
  open_library(library_path, kHow);
  REQUIRE(abi_version() >> 16 == CUA_ABI_MAJOR && std::strstr(build_info(), "\"cpu\"") != nullptr);
  // Children of a process with another thread, before any engine.
  std::mutex held;
  held.lock();
  std::thread other([&] { held.lock(); });
  Answers first;
  for (int i = 0; i < 2; ++i) {
    in_child([] { undisturbed(life()); });
  }
  held.unlock();
  other.join();
  undisturbed(life());
  // A child that leaves its parent's engine alone ends in order.
  cua_engine *const engine = open_engine(ids_model);
  in_child([] {});
  in_child([] { undisturbed(life()); });
  destroy(engine);
}

volatile sig_atomic_t alarms;

// Of every thread that is not the host's.
void check_library_threads(pid_t host) {
  size_t checked = 0;
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(host)) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      for (const int signal :
           {SIGHUP, SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGPIPE, SIGUSR1, SIGURG, SIGWINCH}) {
        REQUIRE((blocked >> (signal - 1) & 1) == 1);
      }
      for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
        REQUIRE((blocked >> (signal - 1) & 1) == 0);
      }
      ++checked;
    }
  }
  REQUIRE(checked >= 2);
}

void signals() {
  open_library(library_path, kHow);
  const Answers first = life();
  cua_engine *const engines[] = {open_engine(ids_model), open_engine(text_model)};
  REQUIRE(ask(engines[0], engines[1]) == first);  // they have all started
  check_library_threads(getpid());
  for (cua_engine *const engine : engines) destroy(engine);
  for (const auto handler : {SIG_DFL, SIG_IGN}) {
    std::signal(SIGPIPE, handler);
    undisturbed(first);
  }
  // Interrupted a thousand times a second, and without SA_RESTART.
  struct sigaction action {};
  action.sa_handler = [](int) { alarms = alarms + 1; };
  REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0);
  itimerval timer{{0, 1000}, {0, 1000}};
  REQUIRE(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  while (alarms < 100) undisturbed(first);
  timer = {};
  REQUIRE(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  sigset_t all;
  sigfillset(&all);
  REQUIRE(pthread_sigmask(SIG_SETMASK, &all, nullptr) == 0);
  undisturbed(first);
}

void floating_point() {
  Answers first;
  void *library = open_library(library_path, kHow);
  first = life();
  REQUIRE(dlclose(library) == 0);
  const uint32_t usual = _mm_getcsr();
  constexpr uint32_t kFlushed = 0x8040;  // subnormal results and operands are zero
  const struct {
    int traps, rounding;
    uint32_t flushed;
  } states[] = {{0, FE_UPWARD, kFlushed},
                {FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW, FE_TONEAREST, 0},
                {FE_ALL_EXCEPT, FE_DOWNWARD, 0},
                {FE_ALL_EXCEPT, FE_TOWARDZERO, kFlushed}};
  for (const auto &state : states) {
    REQUIRE(fesetround(state.rounding) == 0);
    _mm_setcsr(_mm_getcsr() | state.flushed);
    if (state.traps == 0) feraiseexcept(FE_UNDERFLOW | FE_INEXACT);  // someone's flags
    REQUIRE(feenableexcept(state.traps) >= 0);
    library = open_library(library_path, kHow);
    undisturbed(first);
    // Each call by itself.
    cua_engine *const engines[] = {open_engine(ids_model), open_engine(text_model)};
    const ProcessState before;
    const Answers answers = ask(engines[0], engines[1]);
    before.check(ProcessState());
    REQUIRE(answers == first);
    for (cua_engine *const engine : engines) destroy(engine);
    REQUIRE(dlclose(library) == 0);
    fesetenv(FE_DFL_ENV);
    REQUIRE(_mm_getcsr() == usual);
  }
}

struct CommaAndGroups : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\1"; }
};

void locales() {
  open_library(library_path, kHow);
  const Answers first = life();
  // Made for the test where the system has the sources of locales.
  std::array<char, 32> folder{"/tmp/cua_locales_XXXXXX"};
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  setenv("LOCPATH", folder.data(), 1);
  const std::vector<std::string> names{"C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8"};
  for (const std::string &name : names) {
    if (name[0] == 'C') continue;
    const std::string command = "localedef --no-archive -i " + name.substr(0, 5) + " -f UTF-8 " +
                                folder.data() + "/" + name + " >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) std::printf("%s could not be made\n", name.c_str());
  }
  for (const std::string &name : names) {
    if (std::setlocale(LC_ALL, name.c_str()) == nullptr) continue;
    std::printf("locale %s\n", name.c_str());
    undisturbed(first);
  }
  const locale_t own = newlocale(LC_ALL_MASK, std::setlocale(LC_ALL, nullptr), nullptr);
  REQUIRE(own != nullptr);
  std::setlocale(LC_ALL, "C");
  std::filesystem::remove_all(folder.data());
  uselocale(own);
  undisturbed(first);
  uselocale(LC_GLOBAL_LOCALE);
  freelocale(own);
  std::locale::global(std::locale(std::locale::classic(), new CommaAndGroups));
  undisturbed(first);
}

void descriptors() {
  open_library(library_path, kHow);
  const Answers first = life();
  in_child([&] {  // what is opened gets the numbers of the standard streams
    for (const int descriptor : {0, 1, 2}) close(descriptor);
    undisturbed(first);
  });
  in_child([&] {  // nothing is written to them
    std::array<char, 32> path{"/tmp/cua_output_XXXXXX"};
    const int file = mkstemp(path.data());
    unlink(path.data());
    for (const int descriptor : {1, 2}) dup2(file, descriptor);
    undisturbed(first);
    struct stat status;
    REQUIRE(fstat(file, &status) == 0 && status.st_size == 0);
  });
  in_child([&] {  // none to be had: an error
    const rlimit none{3, 3};
    cua_engine_options options{};
    options.struct_size = sizeof options;
    options.model_dir = text_model;
    options.model_dir_length = std::strlen(text_model);
    cua_engine *engine = nullptr;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int i = 0; i < 3; ++i)
      REQUIRE(create(&options, &engine, nullptr) != CUA_OK && engine == nullptr);
  });
}

const std::map<std::string, void (*)()> cases = {{"names", names},
                                                 {"reopen", reopen},
                                                 {"small_stack", small_stack},
                                                 {"after_fork", after_fork},
                                                 {"signals", signals},
                                                 {"locales", locales},
                                                 {"descriptors", descriptors},
                                                 {"floating_point", floating_point}};

}  // namespace

int main(int argc, char **argv) {
  const auto chosen = argc == 5 ? cases.find(argv[4]) : cases.end();
  if (chosen == cases.end()) {
    std::fprintf(stderr, "usage: host LIBRARY IDS_MODEL TEXT_MODEL CASE; cases:");
    for (const auto &[name, body] : cases) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  library_path = argv[1];
  ids_model = argv[2];
  text_model = argv[3];
  chosen->second();
  std::printf("%s: as it should be\n", argv[4]);
  return 0;
}
