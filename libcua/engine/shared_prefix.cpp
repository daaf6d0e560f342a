// SPDX-License-Identifier: Apache-2.0
#include "engine/shared_prefix.h"

#include <algorithm>
#include <numeric>

namespace cua::engine {
namespace {

constexpr size_t kWindow = 256;  // prompts that are compared with each other

// A run of prompts in the order of their tokens, so that those that share the most are neighbours.
struct Run {
  size_t begin, end;
};

class Grouping {
 public:
  // shared [n - 1]: tokens that prompt i has in common with the next one.
  Grouping(std::span<const size_t> shared, std::span<const size_t> starts, size_t cost)
      : shared_(shared), starts_(starts), cost_(cost) {}

  // Appends the groups of a run that gain the most together; returns how much that is.
  size_t best(Run run, std::vector<Run> &groups) const {
    if (run.end - run.begin < 2) return 0;
    // As one group it has what all share; apart, it falls at a place where the least is shared.
    const auto least = std::min_element(shared_.begin() + static_cast<ptrdiff_t>(run.begin),
                                        shared_.begin() + static_cast<ptrdiff_t>(run.end - 1));
    const size_t split = static_cast<size_t>(least - shared_.begin()) + 1;
    std::vector<Run> apart;
    const size_t gain_apart = best({run.begin, split}, apart) + best({split, run.end}, apart);
    const size_t start = starts_[run.begin];
    const size_t saved = *least > start ? (*least - start) * (run.end - run.begin - 1) : 0;
    if (saved > cost_ && saved - cost_ >= gain_apart) {
      groups.push_back(run);
      return saved - cost_;
    }
    groups.insert(groups.end(), apart.begin(), apart.end());
    return gain_apart;
  }

  size_t tokens(Run run) const {
    return *std::min_element(shared_.begin() + static_cast<ptrdiff_t>(run.begin),
                             shared_.begin() + static_cast<ptrdiff_t>(run.end - 1));
  }
  size_t saved(Run run) const {
    return (tokens(run) - starts_[run.begin]) * (run.end - run.begin - 1);
  }

 private:
  std::span<const size_t> shared_, starts_;
  size_t cost_;
};

// Of a prompt at least one row is left to compute.
size_t in_common(const std::vector<uint32_t> &a, const std::vector<uint32_t> &b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const size_t most = std::min(a.size(), b.size()) - 1;
  const size_t equal = std::min(static_cast<size_t>(differ.first - a.begin()), most);
  return equal / kPrefixMultiple * kPrefixMultiple;
}

}  // namespace

std::vector<SharedPrefix> shared_prefixes(std::span<const std::vector<uint32_t>> prompts,
                                          std::span<const size_t> starts, size_t cost, size_t most,
                                          size_t room) {
  size_t all = 0;
  for (const std::vector<uint32_t> &prompt : prompts) all += prompt.size();
  if (all <= cost) return {};  // more than there is cannot be saved
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return prompts[a] < prompts[b]; });
  std::vector<size_t> shared(prompts.size()), start(prompts.size());
  for (size_t i = 0; i < order.size(); ++i) {
    start[i] = starts[order[i]];
    if (i + 1 < order.size()) shared[i] = in_common(prompts[order[i]], prompts[order[i + 1]]);
  }
  const Grouping grouping(shared, start, cost);
  std::vector<Run> runs;
  for (size_t begin = 0; begin < order.size(); begin += kWindow) {
    grouping.best({begin, std::min(begin + kWindow, order.size())}, runs);
  }
  std::sort(runs.begin(), runs.end(),
            [&](Run a, Run b) { return grouping.saved(a) > grouping.saved(b); });
  std::vector<SharedPrefix> groups;
  for (const Run run : runs) {
    const size_t tokens = grouping.tokens(run);
    if (groups.size() == most || tokens > room) continue;
    room -= tokens;
    groups.push_back({tokens,
                      {order.begin() + static_cast<ptrdiff_t>(run.begin),
                       order.begin() + static_cast<ptrdiff_t>(run.end)}});
  }
  return groups;
}

}  // namespace cua::engine
