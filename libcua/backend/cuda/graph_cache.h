// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <list>

namespace cua::backend::cuda {

// Captured passes by their number of rows, least recently used out first. Owns the graphs.
class GraphCache {
 public:
  explicit GraphCache(size_t capacity) : capacity_(capacity) {}
  ~GraphCache() { clear(); }
  GraphCache(const GraphCache &) = delete;
  GraphCache &operator=(const GraphCache &) = delete;

  // nullptr where there is none; the one found becomes the most recent.
  cudaGraphExec_t find(size_t rows) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->rows != rows) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().graph;
    }
    return nullptr;
  }

  // Takes the graph. Returns how many were dropped to make room.
  size_t insert(size_t rows, cudaGraphExec_t graph) {
    size_t dropped = 0;
    for (; entries_.size() >= capacity_ && !entries_.empty(); ++dropped) {
      (void)cudaGraphExecDestroy(entries_.back().graph);
      entries_.pop_back();
    }
    entries_.push_front({rows, graph});
    return dropped;
  }

  void clear() {
    for (const Entry &entry : entries_) (void)cudaGraphExecDestroy(entry.graph);
    entries_.clear();
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    size_t rows;
    cudaGraphExec_t graph;
  };
  size_t capacity_;
  std::list<Entry> entries_;  // most recent first
};

}  // namespace cua::backend::cuda
