-- Whole numbers in doubles: what every law counts with. The first part of the function `rarer` (scripts.py).
--
-- Sees `now`, `ask` (redis.pcall) and `allowance_ms`. Every number here is whole and below EXACT, where
-- doubles are exact. A quotient of two of them may be rounded up to the next whole number, never beyond,
-- so comparing the product tells.

local find, match, format, floor, ceil = string.find, string.match, string.format, math.floor, math.ceil
local max, min = math.max, math.min
local THREE, FIVE, SIX = '%d %d %d', '%d %d %d %d %d', '%d %d %d %d %d %d'
if struct.size('l') < 8 then -- "%d" takes a third of the time, and is exact where a C long has 64 bits
  THREE, FIVE, SIX = '%.0f %.0f %.0f', '%.0f %.0f %.0f %.0f %.0f', '%.0f %.0f %.0f %.0f %.0f %.0f'
end
local EXACT, MOST, STEP_US = 9007199254740992, 9007199254740991, 60000000

local function div_floor(a, b)
  local quotient = floor(a / b)
  return quotient * b > a and quotient - 1 or quotient
end

local function div_ceil(a, b)
  local quotient = floor(a / b)
  return quotient * b < a and quotient + 1 or quotient
end

-- The multiple of `length` at or before the instant, also where the instant is negative.
local function aligned(at, length)
  local rest = math.fmod(at, length)
  return rest < 0 and at - rest - length or at - rest
end

-- The whole number that a text says, an exponent included; nil if it says none that is exact. What stands
-- behind a zero byte tonumber() would not see.
local function whole(text)
  local number = tonumber(text)
  if number and number > -EXACT and number < EXACT and number % 1 == 0 and not find(text, '\0', 1, true) then
    return number
  end
end

-- The instant that counts, as in core/law.py: never before the last one, unless the clock stepped back far.
local function clock(at)
  return (now >= at or at - now > STEP_US) and now or at
end

local function begun(at, last)
  return max(at, last + 1)
end

-- Keeps a text as the value of a key, with an expiry unless no time makes the state fresh; the error, if any.
local function kept(key, value, fresh_in_us)
  local done
  if fresh_in_us then
    done = ask('SET', key, value, 'PX', ceil(fresh_in_us / 1000) + allowance_ms)
  else
    done = ask('SET', key, value)
  end
  return done.err
end

-- An error of the server as a line of the reply.
local function told(failure)
  return '!' .. string.gsub(failure, '[\r\n]+', ' ')
end
