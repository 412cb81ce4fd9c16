//! JSON functions.

use std::borrow::Cow;

use super::{GeneratedError, Result};
use crate::convert::{number_of, plain_text, unquoted};
use crate::json::{Json, JsonNode, JsonRef};
use crate::value::Value;

pub(super) fn call(name: &str, arguments: &[Value<'static>]) -> Result<Value<'static>> {
    match (name, arguments) {
        ("json_extract", [document, paths @ ..]) => extract(document, paths),
        ("json_unquote", [value]) => Ok(Value::Text(Cow::Owned(unquote(value)))),
        ("json_valid", [Value::Json(_)]) => Ok(Value::Int(1)),
        ("json_valid", [value]) => Ok(Value::Int(i64::from(Json::parse(&plain_text(value)).is_some()))),
        ("json_type", [value]) => {
            let json = document_of(value)?;
            Ok(Value::Text(Cow::Borrowed(type_name(json.root())?)))
        }
        ("json_length", [value]) => {
            let json = document_of(value)?;
            length(json.root())
        }
        ("json_length", [value, path]) => {
            let json = document_of(value)?;
            resolve(json.root(), &plain_text(path))?.map_or(Ok(Value::Null), length)
        }
        ("json_depth", [value]) => {
            let json = document_of(value)?;
            let depth = depth(&serde_value(&json)?);
            Ok(Value::Int(i64::try_from(depth).unwrap_or(i64::MAX)))
        }
        ("json_contains", [target, candidate]) => contains(target, candidate, "$"),
        ("json_contains", [target, candidate, path]) => contains(target, candidate, &plain_text(path)),
        ("json_contains_path", [document, mode, paths @ ..]) => {
            let json = document_of(document)?;
            let found = |path: &Value<'_>| Ok(resolve(json.root(), &plain_text(path))?.is_some());
            let found: Vec<bool> = paths.iter().map(found).collect::<Result<_>>()?;
            let all = plain_text(mode).eq_ignore_ascii_case("all");
            Ok(Value::Int(i64::from(if all { found.iter().all(|f| *f) } else { found.contains(&true) })))
        }
        ("json_keys", [document]) => keys(document),
        ("json_quote", [Value::Null]) => Ok(Value::Null),
        ("json_quote", [value]) => {
            let json = Json::from_string(&plain_text(value));
            Ok(Value::Text(Cow::Owned(plain_text(&Value::Json(json)))))
        }
        ("json_array", values) => {
            let elements: Vec<_> = values.iter().map(element).collect::<Result<_>>()?;
            built(&serde_json::Value::Array(elements))
        }
        ("json_object", values) if values.len() % 2 == 0 => {
            let mut members = serde_json::Map::new();
            for pair in values.chunks(2) {
                let [key, value] = pair else { continue };
                members.insert(plain_text(key), element(value)?);
            }
            built(&serde_json::Value::Object(members))
        }
        _ => Err(GeneratedError::Unsupported(format!("function {name}"))),
    }
}

fn built(value: &serde_json::Value) -> Result<Value<'static>> {
    Json::from_value(value).map(Value::Json).ok_or(GeneratedError::OutOfRange)
}

/// A SQL value as an element of a new array or object.
fn element(value: &Value<'_>) -> Result<serde_json::Value> {
    Ok(match value {
        Value::Null => serde_json::Value::Null,
        Value::Int(int) => (*int).into(),
        Value::Year(year) => (*year).into(),
        Value::UInt(uint) => (*uint).into(),
        Value::Float(_) | Value::Double(_) | Value::Decimal(_) => number_of(value).to_f64().into(),
        Value::Json(json) => serde_value(json)?,
        other => plain_text(other).into(),
    })
}

fn serde_value(json: &Json<'_>) -> Result<serde_json::Value> {
    let mut text = Vec::new();
    json.write_text(&mut text).map_err(|_| GeneratedError::Column)?;
    serde_json::from_slice(&text).map_err(|_| GeneratedError::Column)
}

/// A JSON document; a text is parsed, and one that is no JSON makes TiDB fail too.
fn document_of<'v>(value: &'v Value<'_>) -> Result<Json<'v>> {
    match value {
        Value::Json(json) => Ok(json.reborrow()),
        other => Json::parse(&plain_text(other)).ok_or(GeneratedError::OutOfRange),
    }
}

/// One match gives it alone, several paths an array of all matches; no match gives NULL.
fn extract(document: &Value<'_>, paths: &[Value<'static>]) -> Result<Value<'static>> {
    let json = document_of(document)?;
    let mut found = Vec::new();
    for path in paths {
        found.extend(resolve(json.root(), &plain_text(path))?);
    }
    let owned = |part: JsonRef<'_>| part.to_owned().map_err(|_| GeneratedError::Column);
    match (paths, found.as_slice()) {
        (_, []) => Ok(Value::Null),
        ([_], [only]) => owned(*only).map(Value::Json),
        (_, parts) => {
            let elements = parts.iter().map(|part| serde_value(&owned(*part)?)).collect::<Result<_>>()?;
            built(&serde_json::Value::Array(elements))
        }
    }
}

/// A JSON string without quotes and escapes; anything else as its text.
fn unquote(value: &Value<'_>) -> String {
    match value {
        Value::Json(json) => unquoted(json),
        other => {
            let text = plain_text(other);
            let quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
            let inner = if quoted { serde_json::from_str(&text).ok() } else { None };
            inner.unwrap_or(text)
        }
    }
}

/// The value at a path such as `$.a."b c"[2]`; wildcards and ranges are refused.
fn resolve<'j>(root: JsonRef<'j>, path: &str) -> Result<Option<JsonRef<'j>>> {
    let refused = || GeneratedError::Unsupported(format!("json path {path}"));
    let mut rest = path.trim().strip_prefix('$').ok_or_else(refused)?.trim_start();
    let mut at = root;
    while !rest.is_empty() {
        let next = if let Some(tail) = rest.strip_prefix('.') {
            let (key, tail) = member_name(tail.trim_start()).ok_or_else(refused)?;
            rest = tail;
            match at.node() {
                Ok(JsonNode::Object(object)) => object.get(key.as_bytes()),
                _ => None,
            }
        } else {
            let (index, tail) =
                rest.strip_prefix('[').and_then(|tail| tail.split_once(']')).ok_or_else(refused)?;
            rest = tail;
            element_at(at, index.trim()).ok_or_else(refused)?
        };
        let Some(next) = next else { return Ok(None) };
        at = next;
        rest = rest.trim_start();
    }
    Ok(Some(at))
}

/// Element `index` (a number, or `last` with perhaps something taken off); the outer `None` is for another
/// form. A value that is no array counts as an array of itself.
fn element_at<'j>(value: JsonRef<'j>, index: &str) -> Option<Option<JsonRef<'j>>> {
    let array = match value.node() {
        Ok(JsonNode::Array(array)) => Some(array),
        _ => None,
    };
    let len = array.map_or(1, |array| array.len());
    let index = match index.strip_prefix("last") {
        Some("") => len.checked_sub(1),
        Some(tail) => {
            let back: usize = tail.trim_start().strip_prefix('-')?.trim().parse().ok()?;
            len.checked_sub(back + 1)
        }
        None => Some(index.parse().ok()?),
    };
    Some(index.and_then(|index| match array {
        Some(array) => array.get(index),
        None => (index == 0).then_some(value),
    }))
}

/// A member name at the front of `path`, quoted or plain.
fn member_name(path: &str) -> Option<(String, &str)> {
    if path.starts_with('"') {
        let mut end = 1;
        let bytes = path.as_bytes();
        while *bytes.get(end)? != b'"' {
            end += if bytes.get(end) == Some(&b'\\') { 2 } else { 1 };
        }
        let (quoted, tail) = path.split_at_checked(end + 1)?;
        return Some((serde_json::from_str(quoted).ok()?, tail));
    }
    let end = path.find(['.', '[', ' ']).unwrap_or(path.len());
    let (name, tail) = path.split_at_checked(end)?;
    (!name.is_empty() && name != "*").then(|| (name.to_owned(), tail))
}

fn type_name(value: JsonRef<'_>) -> Result<&'static str> {
    Ok(match value.node().map_err(|_| GeneratedError::Column)? {
        JsonNode::Null => "NULL",
        JsonNode::Bool(_) => "BOOLEAN",
        JsonNode::Int(_) => "INTEGER",
        JsonNode::UInt(_) => "UNSIGNED INTEGER",
        JsonNode::Double(_) => "DOUBLE",
        JsonNode::String(_) => "STRING",
        JsonNode::Opaque { type_code: 16, .. } => "BIT",
        JsonNode::Opaque { type_code: 249..=252, .. } => "BLOB",
        JsonNode::Opaque { .. } => "OPAQUE",
        JsonNode::Date(_) => "DATE",
        JsonNode::DateTime(_) => "DATETIME",
        JsonNode::Duration(_) => "TIME",
        JsonNode::Array(_) => "ARRAY",
        JsonNode::Object(_) => "OBJECT",
    })
}

fn length(value: JsonRef<'_>) -> Result<Value<'static>> {
    let len = match value.node().map_err(|_| GeneratedError::Column)? {
        JsonNode::Array(array) => array.len(),
        JsonNode::Object(object) => object.len(),
        _ => 1,
    };
    Ok(Value::Int(i64::try_from(len).unwrap_or(i64::MAX)))
}

fn depth(value: &serde_json::Value) -> usize {
    let deepest = match value {
        serde_json::Value::Array(elements) => elements.iter().map(depth).max(),
        serde_json::Value::Object(members) => members.values().map(depth).max(),
        _ => None,
    };
    1 + deepest.unwrap_or(0)
}

fn keys(document: &Value<'_>) -> Result<Value<'static>> {
    let json = document_of(document)?;
    match json.root().node() {
        Ok(JsonNode::Object(object)) => {
            let key = |at: usize| String::from_utf8_lossy(object.key(at).unwrap_or_default()).into_owned();
            built(&(0..object.len()).map(key).collect::<Vec<_>>().into())
        }
        _ => Ok(Value::Null),
    }
}

fn contains(target: &Value<'_>, candidate: &Value<'_>, path: &str) -> Result<Value<'static>> {
    let (target, candidate) = (document_of(target)?, document_of(candidate)?);
    let Some(part) = resolve(target.root(), path)? else { return Ok(Value::Null) };
    let part = part.to_owned().map_err(|_| GeneratedError::Column)?;
    let found = includes(&serde_value(&part)?, &serde_value(&candidate)?);
    Ok(Value::Int(i64::from(found)))
}

/// An array contains another if it contains each element, an object another if it contains each member.
fn includes(target: &serde_json::Value, candidate: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (target, candidate) {
        (Array(target), Array(elements)) => {
            elements.iter().all(|element| target.iter().any(|part| includes(part, element)))
        }
        (Array(target), other) => target.iter().any(|part| includes(part, other)),
        (Object(target), Object(members)) => {
            members.iter().all(|(key, value)| target.get(key).is_some_and(|part| includes(part, value)))
        }
        (a, b) if a.is_number() && b.is_number() => a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}
