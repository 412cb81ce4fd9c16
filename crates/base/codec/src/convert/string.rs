//! Texts out of values of any type, and fitting them into columns.

use std::borrow::Cow;

use crate::meta::{FieldType, SqlType};
use crate::text::write_text;
use crate::value::Value;

/// The text of a value where one is needed inside an expression or a conversion. Other than in answers,
/// floats never have an exponent and year 0 has one digit.
pub(crate) fn plain_text(value: &Value<'_>) -> String {
    match value {
        Value::Float(float) => format!("{float}"),
        Value::Double(double) => format!("{double}"),
        Value::Year(year) => year.to_string(),
        other => {
            let mut text = Vec::new();
            let _ = write_text(other, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

/// `value` in a character or binary column.
pub(super) fn convert(value: &Value<'_>, to: &FieldType) -> Value<'static> {
    let bytes = match value {
        Value::Bytes(bytes) if to.is_binary() => bytes.clone().into_owned(),
        // Bytes become text up to the first that belongs to no character.
        Value::Bytes(bytes) => {
            bytes.utf8_chunks().next().map(|chunk| chunk.valid().into()).unwrap_or_default()
        }
        // A BIT becomes the digits of its number.
        Value::Bit { bits, .. } => bits.to_string().into_bytes(),
        other => plain_text(other).into_bytes(),
    };
    if to.is_binary() {
        return Value::Bytes(Cow::Owned(fit_bytes(bytes, to)));
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Value::Text(Cow::Owned(fit_text(representable(text, &to.charset), to)))
}

/// Characters that a narrower character set lacks become question marks.
fn representable(text: String, charset: &str) -> String {
    let fits = |c: char| match charset {
        "ascii" => c.is_ascii(),
        "utf8" | "utf8mb3" => u32::from(c) <= 0xffff,
        _ => true,
    };
    if text.chars().all(fits) { text } else { text.chars().map(|c| if fits(c) { c } else { '?' }).collect() }
}

/// Cuts a text to its column's length: characters for CHAR and VARCHAR, bytes for the TEXT family. CHAR
/// loses its trailing blanks.
pub(crate) fn fit_text(mut text: String, to: &FieldType) -> String {
    if let Ok(length) = usize::try_from(to.flen) {
        let end = if to.tp.is_blob() {
            text.floor_char_boundary(length)
        } else {
            text.char_indices().nth(length).map_or(text.len(), |(at, _)| at)
        };
        text.truncate(end);
    }
    if to.tp == SqlType::Char {
        text.truncate(text.trim_end_matches(' ').len());
    }
    text
}

/// Cuts bytes to their column's length and fills BINARY(n) up with zeros.
pub(crate) fn fit_bytes(mut bytes: Vec<u8>, to: &FieldType) -> Vec<u8> {
    let Ok(length) = usize::try_from(to.flen) else { return bytes };
    bytes.truncate(length);
    if to.tp == SqlType::Char && bytes.len() < length.min(usize::from(u8::MAX)) {
        bytes.resize(length, 0);
    }
    bytes
}

/// The 0-based position of an ENUM or SET member, compared as the column's collation does.
pub(super) fn member(to: &FieldType, name: &str) -> Option<u64> {
    let fold = |text: &str| -> String {
        let text = if to.collate == "binary" || to.collate.contains("0900") {
            text
        } else {
            text.trim_end_matches(' ')
        };
        if to.collate.ends_with("_ci") { text.to_lowercase() } else { text.to_owned() }
    };
    let wanted = fold(name);
    let at = to.elems.iter().position(|elem| fold(elem) == wanted)?;
    u64::try_from(at).ok()
}

/// The bits of SET members that are joined by commas; `None` if one of them does not exist.
pub(super) fn member_bits(to: &FieldType, names: &str) -> Option<u64> {
    if names.is_empty() {
        return Some(0);
    }
    let bit = |name: &str| 1_u64.checked_shl(u32::try_from(member(to, name)?).ok()?);
    names.split(',').try_fold(0, |bits, name| Some(bits | bit(name)?))
}

/// The number that a text names as a whole.
pub(super) fn number_text(text: &str) -> Option<u64> {
    text.parse().ok()
}
