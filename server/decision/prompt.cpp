// SPDX-License-Identifier: Apache-2.0
#include "decision/prompt.h"

#include "decision/python_json.h"

namespace cua_server::decision {
namespace {

constexpr std::string_view kPrefix =
    "<|im_start|>system\n"
    "You are a one-pass computer-use decision model. You are shown the current state of a screen "
    "and a fixed, closed list of candidate (element, action) options, each given a single letter. "
    "Choose exactly one option: the single best next action to take. Answer with ONLY that "
    "option's letter -- no words, no punctuation, no explanation.<|im_end|>\n"
    "<|im_start|>user\n";
constexpr std::string_view kBeforeState =
    "App: Cua Driver\n"
    "Task family: closed-candidate decision\n"
    "\n"
    "Accessibility tree:\n";
constexpr std::string_view kEnd =
    "\n"
    "Answer with a single letter.<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n";

}  // namespace

std::string_view prompt_prefix() { return kPrefix; }

std::string prompt(std::string_view goal, std::string_view state,
                   std::span<const std::string> labels) {
  std::string text;
  size_t size =
      kPrefix.size() + kBeforeState.size() + kEnd.size() + goal.size() + state.size() + 32;
  for (const std::string &label : labels) size += label.size() + 32;
  text.reserve(size);
  text += kPrefix;
  if (!goal.empty()) {
    text += "Goal: ";
    text += goal;
    text += "\n\n";
  }
  text += kBeforeState;
  text += state;
  text += "\n\nOptions:\n";
  char letter = 'A';
  for (const std::string &label : labels) {
    text += letter++;
    text += ". Decision \"";
    append_escaped(text, label);
    text += "\" -> select\n";
  }
  text += kEnd;
  return text;
}

}  // namespace cua_server::decision
