-- SPDX-License-Identifier: Apache-2.0
-- wrk: asks one target after another with GET, and tells latencies as one JSON line.
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'JSON {"requests":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,"max_us":%d,"bad":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), latency.max,
    errors.connect + errors.read + errors.write + errors.timeout))
end
