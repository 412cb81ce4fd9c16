//! JSON that JavaScript reads without loss.

use serde::Serialize;
use serde_json::Value;

/// The largest integer up to which JavaScript's numbers are exact: 2^53 − 1.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// `value` as JSON in which every integer beyond ±(2^53 − 1) is a string of its digits. Timestamps of TiDB's
/// oracle are about 4.7 · 10^17, so they always are; so are the largest values of `bigint` columns.
pub fn exact<T: Serialize>(value: &T) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    quote_large_integers(&mut value);
    Ok(value)
}

fn quote_large_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let unsigned = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if unsigned.is_some_and(|n| n > EXACT_MAX) {
                *value = Value::String(number.to_string());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quote_large_integers),
        Value::Object(members) => members.values_mut().for_each(quote_large_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_beyond_two_to_the_53rd_are_strings_and_smaller_ones_are_numbers() {
        let value = json!({
            "ts": 470_829_764_913_922_070_u64,
            "list": [9_007_199_254_740_991_u64, 9_007_199_254_740_992_u64, -9_007_199_254_740_992_i64],
            "uses": u64::MAX,
            "score": 1e300,
        });
        let expected = json!({
            "ts": "470829764913922070",
            "list": [9_007_199_254_740_991_u64, "9007199254740992", "-9007199254740992"],
            "uses": "18446744073709551615",
            "score": 1e300,
        });
        assert_eq!(exact(&value).expect("already JSON"), expected);
    }
}
