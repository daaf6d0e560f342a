-- SPDX-License-Identifier: Apache-2.0
-- wrk: posts the lines of the file named by the environment variable BODY in turn, and tells
-- latencies as one JSON line. Every thread has its own turn: give wrk one thread.
wrk.method = "POST"
wrk.path = "/v1/systemone"
wrk.headers["Content-Type"] = "application/json"
local bodies = {}
for line in io.lines(assert(os.getenv("BODY"))) do
  bodies[#bodies + 1] = line
end
wrk.body = assert(bodies[1])

if #bodies > 1 then  -- wrk repeats wrk.body by itself, without a call of Lua
  local requests, turn = {}, 0
  function request()
    if turn == 0 and #requests == 0 then
      for i, body in ipairs(bodies) do
        requests[i] = wrk.format(nil, nil, nil, body)
      end
    end
    turn = turn % #requests + 1
    return requests[turn]
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'JSON {"requests":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,"bad":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
