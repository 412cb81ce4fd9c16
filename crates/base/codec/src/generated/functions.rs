//! String and number functions.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::eval::{arithmetic, bytes_of, compare, truth_of};
use super::{Binary, GeneratedError, Result, datetime, json};
use crate::convert::{Number, number_of, plain_text};
use crate::decimal::Decimal;
use crate::value::Value;

/// Longest text that a function may make: TiDB's limit for a whole row.
const TEXT_LEN_MAX: usize = 6 << 20;

/// Calls `name`. Except for a few, a NULL argument makes the result NULL.
pub(super) fn call(name: &str, arguments: &[Value<'static>]) -> Result<Value<'static>> {
    match name {
        "isnull" => return Ok(Value::Int(i64::from(arguments.first().is_some_and(Value::is_null)))),
        "concat_ws" => return concat_ws(arguments),
        "json_array" | "json_object" | "json_quote" => return json::call(name, arguments),
        _ => {}
    }
    if arguments.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    if let Some(result) = numeric(name, arguments) {
        return result;
    }
    if let Some(result) = textual(name, arguments).or_else(|| counted(name, arguments)) {
        return result;
    }
    if name.starts_with("json_") {
        return json::call(name, arguments);
    }
    datetime::call(name, arguments)
}

fn numeric(name: &str, arguments: &[Value<'static>]) -> Option<Result<Value<'static>>> {
    let double = |value: &Value<'_>| number_of(value).to_f64();
    Some(match (name, arguments) {
        ("abs", [x]) if truth_of(x) == Some(false) => Ok(x.clone()),
        ("abs", [x]) => {
            let negative = compare(x, &Value::Int(0), false).is_lt();
            if negative {
                arithmetic(Binary::Subtract, &Value::Int(0), x)
            } else {
                arithmetic(Binary::Add, x, &Value::Int(0))
            }
        }
        ("mod", [x, y]) => arithmetic(Binary::Modulo, x, y),
        ("floor" | "ceil" | "ceiling", [x]) => whole(x, name == "floor"),
        ("round", [x]) => round(x, 0),
        ("round", [x, digits]) => round(x, number_of(digits).to_i64()),
        ("truncate", [x, digits]) => truncate(x, number_of(digits).to_i64()),
        ("sign", [x]) => Ok(sign(compare(x, &Value::Int(0), false))),
        ("pow" | "power", [x, y]) => finite(double(x).powf(double(y))),
        ("sqrt", [x]) if double(x) < 0.0 => Ok(Value::Null),
        ("sqrt", [x]) => finite(double(x).sqrt()),
        ("exp", [x]) => finite(double(x).exp()),
        ("ln" | "log", [x]) => logarithm(double(x), f64::ln),
        ("log2", [x]) => logarithm(double(x), f64::log2),
        ("log10", [x]) => logarithm(double(x), f64::log10),
        ("crc32", [x]) => Ok(Value::UInt(u64::from(crc32fast::hash(&bytes_of(x))))),
        ("bit_count", [x]) => Ok(Value::Int(i64::from(number_of(x).to_u64(false).count_ones()))),
        ("greatest" | "least", [first, rest @ ..]) => {
            let better = |best: &Value<'_>, next: &Value<'_>| {
                let order = compare(next, best, false);
                if name == "least" { order.is_lt() } else { order.is_gt() }
            };
            Ok(rest.iter().fold(first, |best, next| if better(best, next) { next } else { best }).clone())
        }
        _ => return None,
    })
}

const fn sign(order: Ordering) -> Value<'static> {
    Value::Int(match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}

fn finite(result: f64) -> Result<Value<'static>> {
    if result.is_finite() { Ok(Value::Double(result)) } else { Err(GeneratedError::OutOfRange) }
}

fn logarithm(x: f64, log: fn(f64) -> f64) -> Result<Value<'static>> {
    if x <= 0.0 { Ok(Value::Null) } else { finite(log(x)) }
}

/// The nearest whole number below or above.
fn whole(value: &Value<'static>, down: bool) -> Result<Value<'static>> {
    match number_of(value) {
        Number::Int(int) => Ok(Value::Int(int)),
        Number::UInt(uint) => Ok(Value::UInt(uint)),
        Number::Decimal(decimal) => {
            let floor =
                if down { decimal.floor() } else { decimal.negated().floor().map(|floor| floor.negated()) };
            let floor = floor.ok_or(GeneratedError::OutOfRange)?;
            Ok(floor.to_string().parse().map_or(Value::Decimal(floor), Value::Int))
        }
        number => finite(if down { number.to_f64().floor() } else { number.to_f64().ceil() }),
    }
}

fn round(value: &Value<'static>, digits: i64) -> Result<Value<'static>> {
    match number_of(value) {
        Number::Int(_) | Number::UInt(_) if digits >= 0 => Ok(value.clone()),
        number @ (Number::Int(_) | Number::UInt(_)) => {
            let rounded = shifted_round(number.to_f64(), digits);
            Ok(Value::Int(Number::Float(rounded).to_i64()))
        }
        Number::Decimal(decimal) => {
            let scale = u8::try_from(digits.max(0)).unwrap_or(u8::MAX).min(decimal.scale());
            let rounded = if digits >= 0 {
                decimal.with_scale(scale)
            } else {
                Some(Decimal::from_f64(shifted_round(decimal.to_f64(), digits)))
            };
            rounded.map(Value::Decimal).ok_or(GeneratedError::OutOfRange)
        }
        number => finite(shifted_round(number.to_f64(), digits)),
    }
}

/// Rounds a double to `digits` after the point, halves to the even neighbour.
fn shifted_round(value: f64, digits: i64) -> f64 {
    let shift = 10_f64.powi(i32::try_from(digits).unwrap_or(if digits < 0 { -400 } else { 400 }));
    let scaled = value * shift;
    if scaled.is_infinite() { value } else { scaled.round_ties_even() / shift }
}

fn truncate(value: &Value<'static>, digits: i64) -> Result<Value<'static>> {
    match number_of(value) {
        Number::Decimal(decimal) if digits >= 0 => {
            let scale = u8::try_from(digits).unwrap_or(u8::MAX).min(decimal.scale());
            decimal.truncated(scale).map(Value::Decimal).ok_or(GeneratedError::OutOfRange)
        }
        Number::Int(_) | Number::UInt(_) if digits >= 0 => Ok(value.clone()),
        number => {
            let shift = 10_f64.powi(i32::try_from(digits).unwrap_or(if digits < 0 { -400 } else { 400 }));
            let cut = (number.to_f64() * shift).trunc() / shift;
            if matches!(number, Number::Int(_)) {
                Ok(Value::Int(Number::Float(cut).to_i64()))
            } else {
                finite(cut)
            }
        }
    }
}

/// Text or bytes, as the arguments were.
fn string(bytes: Vec<u8>, binary: bool) -> Result<Value<'static>> {
    if bytes.len() > TEXT_LEN_MAX {
        return Err(GeneratedError::OutOfRange);
    }
    match String::from_utf8(bytes) {
        Ok(text) if !binary => Ok(Value::Text(Cow::Owned(text))),
        Ok(text) => Ok(Value::Bytes(Cow::Owned(text.into_bytes()))),
        Err(error) => Ok(Value::Bytes(Cow::Owned(error.into_bytes()))),
    }
}

fn text(text: impl Into<String>) -> Result<Value<'static>> {
    string(text.into().into_bytes(), false)
}

/// The units that positions in a string count: characters, or bytes of binary strings.
fn units(value: &Value<'_>) -> Vec<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => bytes.iter().map(|byte| vec![*byte]).collect(),
        other => plain_text(other).chars().map(|c| c.to_string().into_bytes()).collect(),
    }
}

fn slice(value: &Value<'_>, from: usize, to: usize) -> Result<Value<'static>> {
    let units = units(value);
    let part = units.get(from.min(units.len())..to.min(units.len())).unwrap_or_default();
    string(part.concat(), matches!(value, Value::Bytes(_)))
}

fn textual(name: &str, arguments: &[Value<'static>]) -> Option<Result<Value<'static>>> {
    let int = |value: &Value<'_>| number_of(value).to_i64();
    let count = |value: &Value<'_>| usize::try_from(int(value)).unwrap_or(0);
    Some(match (name, arguments) {
        ("concat", arguments) => {
            let binary = arguments.iter().any(|value| matches!(value, Value::Bytes(_)));
            string(arguments.iter().flat_map(|value| bytes_of(value).into_owned()).collect(), binary)
        }
        ("upper" | "ucase", [x]) => cased(x, str::to_uppercase),
        ("lower" | "lcase", [x]) => cased(x, str::to_lowercase),
        ("left", [x, n]) => slice(x, 0, count(n)),
        ("right", [x, n]) => {
            let len = units(x).len();
            slice(x, len.saturating_sub(count(n)), len)
        }
        ("substr" | "substring" | "mid", [x, from]) => substring(x, int(from), i64::MAX),
        ("substr" | "substring" | "mid", [x, from, n]) => substring(x, int(from), int(n)),
        ("substring_index", [x, delimiter, n]) => {
            substring_index(&plain_text(x), &plain_text(delimiter), int(n))
        }
        ("trim_both" | "trim_leading" | "trim_trailing", [x, what]) => trim(name, x, what),
        ("ltrim", [x]) => trim("trim_leading", x, &Value::Text(Cow::Borrowed(" "))),
        ("rtrim", [x]) => trim("trim_trailing", x, &Value::Text(Cow::Borrowed(" "))),
        ("replace", [x, from, to]) => {
            let from = plain_text(from);
            if from.is_empty() {
                text(plain_text(x))
            } else {
                text(plain_text(x).replace(&from, &plain_text(to)))
            }
        }
        ("reverse", [x]) => {
            let mut units = units(x);
            units.reverse();
            string(units.concat(), matches!(x, Value::Bytes(_)))
        }
        ("repeat", [x, n]) => {
            let bytes = bytes_of(x);
            let times = count(n);
            if bytes.len().saturating_mul(times) > TEXT_LEN_MAX {
                Ok(Value::Null)
            } else {
                string(bytes.repeat(times), matches!(x, Value::Bytes(_)))
            }
        }
        ("space", [n]) if count(n) <= TEXT_LEN_MAX => text(" ".repeat(count(n))),
        ("lpad" | "rpad", [x, n, fill]) => pad(x, int(n), fill, name == "lpad"),
        ("hex", [x]) => text(hex(x)),
        ("unhex", [x]) => unhex(&plain_text(x)),
        ("bin", [x]) => text(format!("{:b}", number_of(x).to_u64(false))),
        ("oct", [x]) => text(format!("{:o}", number_of(x).to_u64(false))),
        ("elt", [n, list @ ..]) => {
            Ok(count(n).checked_sub(1).and_then(|at| list.get(at)).cloned().unwrap_or(Value::Null))
        }
        _ => return None,
    })
}

/// String functions that give lengths and positions.
fn counted(name: &str, arguments: &[Value<'static>]) -> Option<Result<Value<'static>>> {
    let count = |value: &Value<'_>| usize::try_from(number_of(value).to_i64()).unwrap_or(0);
    let length = |len: usize| Ok(Value::Int(i64::try_from(len).unwrap_or(i64::MAX)));
    Some(match (name, arguments) {
        ("length" | "octet_length", [x]) => length(bytes_of(x).len()),
        ("bit_length", [x]) => length(bytes_of(x).len() * 8),
        ("char_length" | "character_length", [x]) => length(units(x).len()),
        ("locate", [part, whole]) => length(position(part, whole, 1)),
        ("locate", [part, whole, from]) => length(position(part, whole, count(from))),
        ("instr", [whole, part]) => length(position(part, whole, 1)),
        ("ascii", [x]) => length(usize::from(bytes_of(x).first().copied().unwrap_or(0))),
        ("strcmp", [x, y]) => Ok(sign(compare(x, y, false))),
        ("field", [x, list @ ..]) => {
            length(list.iter().position(|y| compare(x, y, false).is_eq()).map_or(0, |at| at + 1))
        }
        ("find_in_set", [x, list]) => {
            let (x, list) = (plain_text(x), plain_text(list));
            length(list.split(',').position(|part| part == x).map_or(0, |at| at + 1))
        }
        _ => return None,
    })
}

/// Binary strings have no case.
fn cased(value: &Value<'static>, change: fn(&str) -> String) -> Result<Value<'static>> {
    match value {
        Value::Bytes(_) => Ok(value.clone()),
        other => text(change(&plain_text(other))),
    }
}

/// Skips NULLs; the separator must not be one.
fn concat_ws(arguments: &[Value<'static>]) -> Result<Value<'static>> {
    let Some((separator, parts)) = arguments.split_first() else { return Ok(Value::Null) };
    if separator.is_null() {
        return Ok(Value::Null);
    }
    let parts: Vec<_> = parts.iter().filter(|part| !part.is_null()).map(|part| bytes_of(part)).collect();
    string(
        parts.join(bytes_of(separator).as_ref()),
        arguments.iter().any(|value| matches!(value, Value::Bytes(_))),
    )
}

/// Positions count from 1, or backwards from −1; 0 is nowhere.
fn substring(value: &Value<'static>, from: i64, count: i64) -> Result<Value<'static>> {
    let len = i64::try_from(units(value).len()).unwrap_or(i64::MAX);
    let start = if from > 0 { from - 1 } else { len + from };
    if from == 0 || start < 0 || start >= len || count <= 0 {
        return slice(value, 0, 0);
    }
    let end = start.saturating_add(count).min(len);
    slice(value, usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0))
}

/// What stands before the `count`-th delimiter, from the right for negative counts.
fn substring_index(whole: &str, delimiter: &str, count: i64) -> Result<Value<'static>> {
    if delimiter.is_empty() || count == 0 {
        return text("");
    }
    let parts: Vec<&str> = whole.split(delimiter).collect();
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(parts.len());
    let from = if count > 0 { 0 } else { parts.len() - wanted };
    text(parts.get(from..from + wanted).unwrap_or_default().join(delimiter))
}

fn trim(side: &str, value: &Value<'_>, what: &Value<'_>) -> Result<Value<'static>> {
    let (whole, what) = (plain_text(value), plain_text(what));
    let mut rest = whole.as_str();
    if what.is_empty() {
        return text(rest);
    }
    while side != "trim_trailing" && rest.starts_with(&what) {
        rest = rest.get(what.len()..).unwrap_or_default();
    }
    while side != "trim_leading" && rest.ends_with(&what) {
        rest = rest.get(..rest.len() - what.len()).unwrap_or_default();
    }
    text(rest)
}

fn pad(value: &Value<'_>, length: i64, fill: &Value<'_>, left: bool) -> Result<Value<'static>> {
    let (mut units, fill) = (units(value), units(fill));
    let Ok(length) = usize::try_from(length) else { return Ok(Value::Null) };
    let missing = length.saturating_sub(units.len());
    if (missing > 0 && fill.is_empty()) || length > TEXT_LEN_MAX {
        return Ok(Value::Null);
    }
    units.truncate(length);
    let padding: Vec<Vec<u8>> = fill.iter().cycle().take(missing).cloned().collect();
    let bytes = if left { [padding, units].concat() } else { [units, padding].concat() };
    string(bytes.concat(), matches!(value, Value::Bytes(_)))
}

/// The 1-based position of `part` in `whole`, looking from position `from` on; 0 if there is none.
fn position(part: &Value<'_>, whole: &Value<'_>, from: usize) -> usize {
    let (part, whole) = (units(part), units(whole));
    if from == 0 || from > whole.len() + 1 {
        return 0;
    }
    let starts = from - 1..=whole.len().saturating_sub(part.len());
    let found = |at: &usize| whole.get(*at..*at + part.len()).is_some_and(|window| window == part);
    starts.into_iter().find(found).map_or(0, |at| at + 1)
}

/// Numbers as hexadecimal numbers, strings byte by byte.
fn hex(value: &Value<'_>) -> String {
    match value {
        Value::Text(_) | Value::Bytes(_) | Value::Enum { .. } | Value::Set { .. } | Value::Json(_) => {
            bytes_of(value).iter().map(|byte| format!("{byte:02X}")).collect()
        }
        number => format!("{:X}", number_of(number).to_u64(false)),
    }
}

fn unhex(digits: &str) -> Result<Value<'static>> {
    let padded = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.to_owned() };
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = padded.as_bytes().chunks(2).map(byte).collect();
    Ok(bytes.map_or(Value::Null, |bytes| Value::Bytes(Cow::Owned(bytes))))
}

/// `LIKE`: `%` stands for any text, `_` for one character. Goes back only to the last `%`, so the work is
/// bounded by the product of the lengths.
pub(super) fn like(text: &str, pattern: &str, escape: char) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            c if c == escape => Pattern::One(chars.next().unwrap_or(escape)),
            '%' => Pattern::Any,
            '_' => Pattern::Single,
            c => Pattern::One(c),
        });
    }
    let (mut at, mut token, mut retry) = (0, 0, None);
    loop {
        match (tokens.get(token), text.get(at)) {
            (Some(Pattern::Any), _) => {
                retry = Some((at, token));
                token += 1;
            }
            (Some(Pattern::Single), Some(_)) => (at, token) = (at + 1, token + 1),
            (Some(Pattern::One(wanted)), Some(c)) if wanted == c => (at, token) = (at + 1, token + 1),
            (None, None) => return true,
            _ => match retry {
                Some((from, any)) if from < text.len() => {
                    retry = Some((from + 1, any));
                    (at, token) = (from + 1, any + 1);
                }
                _ => return false,
            },
        }
    }
}

enum Pattern {
    Any,
    Single,
    One(char),
}
