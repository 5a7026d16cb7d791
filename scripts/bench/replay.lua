-- For wrk: sends the requests of a file one after the other, and looks at every answer.
--   wrk … -s replay.lua URL -- FILE STATUS TEXT
-- The requests are whole, as they go on the wire, with a NUL byte between them; each answer must have STATUS and contain TEXT.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

-- Each thread has a state of its own, and done() one of the main program: what it is to see must be global here.
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
  local all, faults, shown, errors = 0, 0, '', summary.errors
  for _, thread in ipairs(threads) do
    all, faults = all + thread:get('seen'), faults + thread:get('wrong')
    if shown == '' then shown = thread:get('first') end
  end
  if summary.requests > all then
    faults, shown = faults + summary.requests - all, 'an answer that wrk has counted and not shown'
  end
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  print(('{"answers":%d,"seconds":%.6f,"p50":%.3f,"p99":%.3f,"wrong":%d,"firstWrong":%s,"socketErrors":%d}'):format(
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, faults, quoted(shown), broken))
end
