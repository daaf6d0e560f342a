// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cua::tools {

// Runs `body` and gives the seconds it took.
template <class Body>
double seconds_of(Body &&body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Of seconds, one a run; p95 is the least of them that 95 % do not exceed.
struct Spread {
  double least = 0, median = 0, p95 = 0;
};
Spread spread_of(std::vector<double> seconds);  // of at least one

// Largest resident set of this process so far, mapped files included; 0 where the system does not
// tell.
uint64_t peak_resident_bytes();
// What this process holds now of its own, mapped files left out; 0 likewise.
uint64_t own_bytes();

// Nothing where path is empty.
void write_json(const std::string &path, const boost::json::value &value);

}  // namespace cua::tools
