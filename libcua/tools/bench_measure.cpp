// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_measure.h"

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <stdexcept>

namespace cua::tools {

Spread spread_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  Spread spread;
  spread.least = seconds.front();
  spread.median = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
  spread.p95 = seconds[(95 * n + 99) / 100 - 1];
  return spread;
}

namespace {

uint64_t status_bytes(const char *field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kilobytes = 0;
    if (word == field && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

uint64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }
uint64_t own_bytes() { return status_bytes("RssAnon:"); }

void write_json(const std::string &path, const boost::json::value &value) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << boost::json::serialize(value) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace cua::tools
