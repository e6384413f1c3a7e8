-- Gives back, or charges on top, what earlier decisions took; each entry for itself. The last part of the
-- script "adjust", and the rules are those of core/compose.py.
--
-- KEYS  one for each entry, in order; then the epoch keys that strict entries name. All in one slot.
-- ARGV  1  the instant in microseconds, or "" for the server's own
--       2  the tag of the call
--       then two for each entry, in the order of KEYS:
--          what is done:
--             "back UNITS OWN FULL COST AT SINCE MARK GIVEN": give back at most UNITS of what a receipt took.
--                OWN was returned before by the same decision; FULL is 1 to return all that is still there;
--                the rest is the receipt: the cost in units, the instant, its busy period, the level
--                afterwards, and what had been given back by then
--             "owe COST MOST WAY EPOCH [WINDOWS]": charge COST units in any case, up to MOST in all; the
--                others as in decide.lua
--          the law as text
-- Reply a text of lines, each with its end: ARGV[2] and the instant, then one for each entry, in order: the
--          units by which its level went down, negative if it went up; or "?" or "!..." as in decide.lua, where
--          nothing was changed.
--
-- Atomic: each entry; later ones see what earlier ones wrote. Writes a key only if its level has changed, or
-- if it had no expiry. Expires: as in decide.lua.

local ask, match = redis.pcall, string.match
local now, allowance_ms, instant = tonumber(ARGV[1]), 3600000, ARGV[1]
if not now then
  local time = redis.call('TIME')
  now, allowance_ms, instant = time[1] * 1000000 + time[2], 60000, time[1] .. ' ' .. time[2]
end
local laws = rarer(now, ask, allowance_ms)
local lines = { ARGV[2] .. instant }

for entry = 1, (#ARGV - 2) / 2 do
  local key, what, text = KEYS[entry], ARGV[2 * entry + 1], ARGV[2 * entry + 2]
  local value = ask('GETRANGE', key, 0, 191)
  if value.err then
    lines[entry + 1] = '!' .. string.gsub(value.err, '[\r\n]+', ' ')
  elseif string.sub(what, 1, 4) == 'back' then
    lines[entry + 1] = laws.given_back(text, key, value, what)
  else
    local cost, most, way, epoch, windows = match(what, '^owe (%d+) (%d+) ([%a_]+) (%S+)(.*)$')
    lines[entry + 1] = laws.owed(text, key, value, tonumber(cost), tonumber(most), way,
      KEYS[tonumber(epoch)], windows)
  end
end
return table.concat(lines, '\n') .. '\n'
