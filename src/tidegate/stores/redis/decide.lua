-- Decides independent requests, one after another, each all-or-nothing. The last part of the script "decide".
--
-- KEYS  one for each charge, in order; then the epoch keys that strict charges name. All in one slot.
-- ARGV  1  the instant in microseconds, or "" for the server's own
--       2  "take", or "look" to change nothing at all; and behind that the tag of the call, if it has one
--       3  one byte for each request: how many charges it has, 1 to 255
--       then two for each charge, in the order of KEYS:
--          what is asked: COST, in units of the law, or COST MODE WAY MOST EPOCH [WINDOWS], where
--             MODE     "e" enforced, "s" shadow: it reports, and is charged only where the request passes
--             WAY      how a changed limit is carried over (carry.lua); COST alone means "strict"
--             MOST     the highest level at which the charge fits, for a patient caller; "-": what is left
--             EPOCH    the position in KEYS of the epoch, for a strict charge; "-" for others
--             WINDOWS  four boundaries of a calendar around the instant, in microseconds
--          the law as text, which is also how its states begin: "L1 room q p " (level.lua) and so on
-- Reply a text of lines, each with its end: ARGV[2] and the instant, then a line for each request, in order:
--          the records of its charges one after the other, each "VERDICT NUMBERS", numbers as in the state
--             without the law (a log: used, at, ago, the instant that frees enough, the newest instant);
--             VERDICT is 0 refused, 1 it fits but nothing was charged, 3 charged
--          "?"      nothing was charged: the instant lies outside the windows that were sent
--          "!..."   nothing was charged: the error that the server gave
--
-- Atomic: each request, with all its charges; later requests of a call see what earlier ones wrote.
-- Writes: all reads and checks of a request come before its first write. A charge writes; a refusal writes
-- only a state carried over or moved back, an expiry that was missing, and an epoch that was not there.
-- Expires: each key when its state would be fresh, in milliseconds rounded up, and an allowance after
-- that: a minute, for a server clock that steps back, or an hour where the instant was given, for a
-- virtual clock may run slower than real time. Epochs, and what no time drains (rate 0), do not expire.
--
-- Levels whose law has not changed are decided here; everything else goes through the laws of the other
-- files, which are only made when they are needed.

local ask, match, format, byte, ceil = redis.pcall, string.match, string.format, string.byte, math.ceil
local keys, args = KEYS, ARGV
local MOST, STEP_US = 9007199254740991, 60000000
-- "%d" is exact where a C long has 64 bits, and takes a third of the time.
local NUMBERS = struct.size('l') == 8 and '%d %d %d %s' or '%.0f %.0f %.0f %s'

local now, allowance_ms, instant = tonumber(args[1]), 3600000, nil
if now then
  instant = args[2] .. args[1]
else
  local time = redis.call('TIME')
  now, allowance_ms, instant = time[1] * 1000000 + time[2], 60000, args[2] .. time[1] .. ' ' .. time[2]
end
local take, sizes = byte(args[2]) == 116, args[3] -- 116: "t"
local lines = { instant, '', '' }
local laws                       -- the laws of the other files, once one is needed
local law, room, p, pattern      -- the level law read last, and the pattern of its states
local charge = 0                 -- how many charges earlier requests had

for number = 1, #sizes do
  local size = byte(sizes, number)
  local passes, failure = take, nil
  local held, others               -- what was found of each charge where there are several; of rarer ones
  local text, cost, level, at, since, given, fits, is_stored

  for i = charge + 1, charge + size do
    text, cost = args[2 * i + 3], tonumber(args[2 * i + 2])
    local is_shadow, way, most, epoch, windows
    if not cost then
      cost, is_shadow, way, most, epoch, windows =
        match(args[2 * i + 2], '^(%d+) (%a) ([%a_]+) (%S+) (%S+)(.*)$')
      cost, is_shadow, most, epoch = tonumber(cost), is_shadow == 's', tonumber(most), tonumber(epoch)
    end
    if text ~= law then
      law, room, p = text, match(text, '^L1 (%d+) %d+ (%d+) $')
      if room then
        room, p, pattern = room + 0, p + 0, '^' .. text .. '(%d+) (%-?%d+) (%-?%d+) (%d+)$'
      end
    end

    local value = ask('GETRANGE', keys[i], '0', '191')
    if value.err then
      failure = '!' .. string.gsub(value.err, '[\r\n]+', ' ')
      break
    end
    level, is_stored = nil, value ~= ''
    if room and is_stored then
      local ago
      level, at, ago, given = match(value, pattern)
      if level then
        level, at, ago = level + 0, at + 0, ago + 0
        since = at - ago
        if level > MOST or at < -MOST or ago > MOST or ago < -MOST or at - now > STEP_US then
          level = nil
        elseif level == 0 then
          at, given = now, '0'
        elseif now >= at then
          local gone = p * (now - at)
          if gone < level then
            level, at = level - gone, now
          else
            level, at, given = 0, now, '0'
          end
        end
      end
    elseif room and not epoch then
      level, at, since, given = 0, now, now - 1, '0'
    end
    if level then
      fits = level <= (most or room - cost)
    else
      laws = laws or rarer(now, ask, allowance_ms)
      others = others or {}
      others[i], fits, failure =
        laws.found(text, cost, keys[i], value, way or 'strict', most, epoch and keys[epoch], windows)
      if failure then
        break
      end
    end
    if not fits and not is_shadow then
      passes = false
    end
    if size > 1 then
      held = held or {}
      held[i] = { fits, level, at, since, given, cost, is_stored, text, p }
    end
  end

  local line
  for i = charge + 1, failure and 0 or charge + size do
    local record, drain = nil, p
    if held then
      local found = held[i]
      fits, level, at, since, given = found[1], found[2], found[3], found[4], found[5]
      cost, is_stored, text, drain = found[6], found[7], found[8], found[9]
    end
    if not level then
      record, failure = laws.settled(others[i], cost, keys[i], fits, is_stored, passes, take)
    elseif passes and fits and cost > 0 then
      if level == 0 then
        since = since < at and at or since + 1
      end
      level = level + cost
      record = format(NUMBERS, level, at, at - since, given)
      local done
      if drain > 0 then
        done = ask('SET', keys[i], text .. record, 'PX', ceil((level / drain + at - now) / 1000) + allowance_ms)
      else
        done = ask('SET', keys[i], text .. record)
      end
      if done.err then
        failure = '!' .. string.gsub(done.err, '[\r\n]+', ' ')
      end
      record = '3 ' .. record
    else
      record = (fits and '1 ' or '0 ') .. format(NUMBERS, level, at, at - since, given)
      if take and is_stored and drain > 0 and ask('PTTL', keys[i]) == -1 then
        ask('PEXPIRE', keys[i], ceil((level / drain + at - now) / 1000) + allowance_ms)
      end
    end
    if failure then
      break
    end
    line = line and line .. ' ' .. record or record
  end
  lines[number + 1] = failure or line or ''
  charge = charge + size
end
lines[#sizes + 2] = ''
return table.concat(lines, '\n')
