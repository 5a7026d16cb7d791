-- For wrk: sends the requests of a file one after the other, and checks every reply.
--   wrk … -s replay.lua URL -- FILE STATUS TEXT
-- FILE holds raw HTTP requests, separated by NUL bytes. Each reply must have STATUS and contain TEXT.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

-- Each thread has its own state. done() runs in the main program and reads only the globals of a thread.
function init(arguments)
  requests, sent, seen, wrong, first = {}, 0, 0, 0, ''
  local file = assert(io.open(arguments[1], 'rb'))
  for text in file:read('*a'):gmatch('[^%z]+') do table.insert(requests, text) end
  file:close()
  status, expected = tonumber(arguments[2]), arguments[3]
end

function request()
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end

function response(code, _, body)
  seen = seen + 1
  if code == status and body:find(expected, 1, true) then return end
  wrong = wrong + 1
  if wrong == 1 then first = code .. ' ' .. body:sub(1, 500) end
end

local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(character) return ('\\u%04x'):format(character:byte()) end) .. '"'
end

function done(summary, latency)
  local all, failed, shown, errors = 0, 0, '', summary.errors
  for _, thread in ipairs(threads) do
    all, failed = all + thread:get('seen'), failed + thread:get('wrong')
    if shown == '' then shown = thread:get('first') end
  end
  if summary.requests > all then
    failed, shown = failed + summary.requests - all, 'a reply that wrk counted and did not pass to response()'
  end
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  print(('{"requests":%d,"seconds":%.6f,"p50":%.3f,"p99":%.3f,"wrong":%d,"firstWrong":%s,"socketErrors":%d}'):format(
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed,
    quoted(shown), broken))
end
