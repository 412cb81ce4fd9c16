//! The canonical text of a JSON value: no insignificant whitespace, object keys in byte order, the shortest
//! escapes, −0.0 written as 0.0. Integers stay integers and doubles stay doubles (`1` and `1.0` differ), so
//! the text is reversible. Depth is limited before anything recurses (`spec/cdc-adapter.md` §4.3).

use serde_json::{Map, Number, Value};

use crate::error::{Breach, SfErrorCode};
use crate::limits::JSON_DEPTH_MAX;

/// The canonical form of the JSON text `text`.
///
/// # Errors
/// `SF_JSON_TOO_DEEP` or `SF_JSON_INVALID`, with an empty path.
pub fn canonical(text: &str) -> Result<String, Breach> {
    check_depth(text)?;
    let value: Value = serde_json::from_str(text).map_err(|e| invalid(position(&e)))?;
    let mut out = String::with_capacity(text.len());
    write(&value, &mut out);
    Ok(out)
}

/// Checks that `text` is JSON in canonical form.
///
/// # Errors
/// As [`canonical`], and `SF_JSON_INVALID` when the canonical form differs.
pub fn check_canonical(text: &str) -> Result<(), Breach> {
    if canonical(text)? == text { Ok(()) } else { Err(invalid("is not in canonical form".to_owned())) }
}

/// The error's place without the text around it: messages never carry row values (I11).
fn position(error: &serde_json::Error) -> String {
    format!("is not JSON: {:?} error at line {} column {}", error.classify(), error.line(), error.column())
}

fn invalid(detail: String) -> Breach {
    Breach::new(SfErrorCode::SfJsonInvalid, "", detail)
}

/// Counts brackets outside strings, so that a hostile depth is refused without recursion.
fn check_depth(text: &str) -> Result<(), Breach> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH_MAX {
            let detail = format!("is nested deeper than {JSON_DEPTH_MAX}");
            return Err(Breach::new(SfErrorCode::SfJsonTooDeep, "", detail));
        }
    }
    Ok(())
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => write_object(members, out),
        Value::Number(number) => write_number(number, out),
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Doubles are written here, because serde_json's own form of them changes with its version.
fn write_number(number: &Number, out: &mut String) {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(double) => {
            out.push_str(ryu::Buffer::new().format_finite(if double == 0.0 { 0.0 } else { double }))
        }
        None => out.push_str(&number.to_string()),
    }
}

fn write_object(members: &Map<String, Value>, out: &mut String) {
    // Sorted here, because the map keeps insertion order when any crate of the build asks for it.
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
    out.push('{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&Value::from(key.as_str()).to_string());
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expect: &str) {
        assert_eq!(canonical(text).as_deref(), Ok(expect), "{text}");
    }

    #[test]
    fn whitespace_goes_and_keys_stand_in_byte_order() {
        check(" { \"b\" : [ 1 , 2 ] , \"a\" : null , \"B\" : true } ", r#"{"B":true,"a":null,"b":[1,2]}"#);
        // In bytes é (c3 a9) comes after z (7a), and 🦀 (f0…) after 飛 (e9…).
        check(r#"{"🦀":1,"飛":2,"é":3,"z":4}"#, r#"{"z":4,"é":3,"飛":2,"🦀":1}"#);
    }

    #[test]
    fn numbers_keep_their_kind_and_negative_zero_loses_its_sign() {
        check(
            "[1, 1.0, -0.0, 18446744073709551615, 1.50, 1E2]",
            "[1,1.0,0.0,18446744073709551615,1.5,100.0]",
        );
    }

    #[test]
    fn escapes_are_the_shortest_ones() {
        check(r#""\u0041\/\u00e9\n\u0001\"""#, r#""A/é\n\u0001\"""#);
    }

    #[test]
    fn sixteen_levels_pass_and_seventeen_are_refused() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        check(&nested(16), &nested(16));
        let deep = canonical(&nested(17)).expect_err("17 levels");
        assert_eq!(deep.code(), SfErrorCode::SfJsonTooDeep);
        let hostile = canonical(&"[".repeat(1 << 20)).expect_err("a million levels");
        assert_eq!(hostile.code(), SfErrorCode::SfJsonTooDeep);
        check(r#""[[[[[[[[[[[[[[[[[[[[[[[[[ \" ]""#, r#""[[[[[[[[[[[[[[[[[[[[[[[[[ \" ]""#);
    }

    #[test]
    fn a_message_about_damaged_json_does_not_show_it() {
        let broken = canonical("{\"secret\": hunter2}").expect_err("not JSON");
        assert_eq!(broken.code(), SfErrorCode::SfJsonInvalid);
        assert!(!broken.to_string().contains("hunter2"), "{broken}");
    }

    proptest! {
        #[test]
        fn the_canonical_form_of_a_canonical_form_is_itself(keys: Vec<String>, numbers: Vec<i64>) {
            let value = serde_json::json!({ "keys": keys, "numbers": numbers });
            let once = canonical(&value.to_string()).expect("JSON of depth 2");
            prop_assert_eq!(check_canonical(&once), Ok(()));
        }

        #[test]
        fn any_text_is_accepted_or_refused_without_panic(text: String) {
            let _ = canonical(&text);
        }
    }
}
