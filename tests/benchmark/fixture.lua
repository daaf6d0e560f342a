-- SPDX-License-Identifier: Apache-2.0
-- wrk: posts the file named by the environment variable BODY, and tells latencies as one JSON line.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.path = "/v1/systemone"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/json"
file:close()

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'JSON {"requests":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,"bad":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
