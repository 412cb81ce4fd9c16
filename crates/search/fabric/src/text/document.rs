//! A stored document as the index sees it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use tantivy::TantivyDocument;
use tantivy::schema::OwnedValue;
use tidegate_contract::fingerprint::Fingerprint;
use tidegate_core::CommitTs;
use tidegate_proto::searchfabric::v1::{
    AtomicValue, FieldData, ObjectValue, VectorValue, atomic_value, field_data, vector_value,
};

use super::layout::{EXACT_BYTES_MAX, FieldPlan, Kind, Layout, TEXT_PATH, root};
use super::order::{decimal_key, float_key, int_key};
use crate::content::is_null;

/// Deepest nesting of JSON that is indexed; the contract admits no deeper value.
const JSON_DEPTH_MAX: usize = 16;

/// Builds the index document. `fields` are the document's values by field id.
pub(crate) fn document<'a>(
    layout: &Layout,
    id: u64,
    version: CommitTs,
    fields: impl Iterator<Item = (i64, &'a FieldData)>,
) -> TantivyDocument {
    let mut target =
        Builder { layout, out: TantivyDocument::new(), has: BTreeSet::new(), json: Trees::default() };
    target.out.add_u64(layout.id, id);
    target.out.add_u64(layout.version, version.get());
    for (field_id, value) in fields.filter(|(_, value)| !is_null(value)) {
        if let Some(plan) = layout.field(field_id) {
            target.field(plan, value);
        }
    }
    target.finish()
}

/// The JSON columns of a document, as the three analyses see them.
#[derive(Default)]
struct Trees {
    exact: BTreeMap<String, OwnedValue>,
    words: BTreeMap<String, OwnedValue>,
    inner: BTreeMap<String, OwnedValue>,
}

struct Builder<'a> {
    layout: &'a Layout,
    out: TantivyDocument,
    has: BTreeSet<String>,
    json: Trees,
}

impl Builder<'_> {
    fn finish(mut self) -> TantivyDocument {
        for term in &self.has {
            self.out.add_text(self.layout.has, term);
        }
        let trees = [
            (self.layout.json_exact, self.json.exact),
            (self.layout.json_words, self.json.words),
            (self.layout.json_inner, self.json.inner),
        ];
        for (field, tree) in trees.into_iter().filter(|(_, tree)| !tree.is_empty()) {
            self.out.add_object(field, tree);
        }
        self.out
    }

    fn field(&mut self, plan: &FieldPlan, value: &FieldData) {
        self.has.insert(root(plan.id));
        match &value.value {
            Some(field_data::Value::AtomicValue(atomic)) => self.atomic(plan, atomic),
            Some(field_data::Value::ListValue(list)) if plan.kind == Kind::Json => {
                self.json(plan, &Json::Array(list.values.iter().map(atomic_json).collect()));
            }
            Some(field_data::Value::ListValue(list)) => {
                list.values.iter().for_each(|atomic| self.atomic(plan, atomic));
            }
            Some(field_data::Value::ObjectArrayValue(array)) => {
                self.json(plan, &Json::Array(array.objects.iter().map(object_json).collect()));
            }
            Some(field_data::Value::VectorValue(_)) | None => {}
        }
    }

    fn atomic(&mut self, plan: &FieldPlan, atomic: &AtomicValue) {
        if let (Some(field), Some(key)) = (plan.number, number_key(plan.kind, atomic)) {
            self.out.add_u64(field, key);
        }
        match (plan.kind, &atomic.value) {
            (Kind::Text, Some(atomic_value::Value::StringValue(text))) => self.text(plan, text),
            (Kind::Decimal, Some(atomic_value::Value::StringValue(text))) => {
                if let (Some(field), Some(key)) = (plan.exact, decimal_key(text)) {
                    self.out.add_text(field, key);
                }
            }
            (Kind::Bytes, Some(atomic_value::Value::BytesValue(bytes))) => {
                if let Some(field) = plan.exact {
                    self.out.add_text(field, exact_term(&hex(bytes)));
                }
            }
            (Kind::Json, Some(atomic_value::Value::StringValue(text))) => {
                if let Ok(value) = serde_json::from_str(text) {
                    self.json(plan, &value);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, plan: &FieldPlan, text: &str) {
        if let Some(field) = plan.exact {
            self.out.add_text(field, exact_term(text));
        }
        for field in [plan.words, plan.inner].into_iter().flatten() {
            self.out.add_text(field, text);
        }
    }

    fn json(&mut self, plan: &FieldPlan, value: &Json) {
        let root = root(plan.id);
        self.json_paths(plan, &mut root.clone(), value, 0);
        if let Some(value) = project(value, &mut String::new(), 0, &|_| true, &exact_leaf) {
            self.json.exact.insert(root.clone(), value);
        }
        let Some(analysis) = &plan.analysis else { return };
        if let Some(value) = project(value, &mut String::new(), 0, &|_| true, &text_leaf) {
            self.json.words.insert(root.clone(), value);
        }
        let inner = |path: &str| analysis.has_inner(path);
        if let Some(value) = project(value, &mut String::new(), 0, &inner, &text_leaf) {
            self.json.inner.insert(root, value);
        }
    }

    /// Notes which paths are present, and which of them hold text.
    fn json_paths(&mut self, plan: &FieldPlan, path: &mut String, value: &Json, depth: usize) {
        match value {
            Json::Null => {}
            Json::Array(items) if depth < JSON_DEPTH_MAX => {
                items.iter().for_each(|item| self.json_paths(plan, path, item, depth + 1));
            }
            Json::Object(members) if depth < JSON_DEPTH_MAX => {
                self.has.insert(path.clone());
                for (name, member) in members {
                    let len = path.len();
                    path.push('.');
                    path.push_str(name);
                    self.json_paths(plan, path, member, depth + 1);
                    path.truncate(len);
                }
            }
            Json::Array(_) | Json::Object(_) => {}
            Json::String(_) => {
                self.has.insert(path.clone());
                if plan.analysis.is_some() {
                    self.has.insert(format!("{TEXT_PATH}{path}"));
                }
            }
            Json::Bool(_) | Json::Number(_) => {
                self.has.insert(path.clone());
            }
        }
    }
}

/// A JSON value in tantivy's terms, reduced to the leaves that `leaf` keeps at the paths that `keep` admits.
fn project(
    value: &Json,
    path: &mut String,
    depth: usize,
    keep: &dyn Fn(&str) -> bool,
    leaf: &dyn Fn(&Json) -> Option<OwnedValue>,
) -> Option<OwnedValue> {
    match value {
        Json::Array(_) | Json::Object(_) if depth >= JSON_DEPTH_MAX => None,
        Json::Array(items) => {
            let items = items.iter().filter_map(|item| project(item, path, depth + 1, keep, leaf));
            let items: Vec<_> = items.collect();
            (!items.is_empty()).then_some(OwnedValue::Array(items))
        }
        Json::Object(members) => {
            let mut kept = Vec::new();
            for (name, member) in members {
                let len = path.len();
                if len > 0 {
                    path.push('.');
                }
                path.push_str(name);
                kept.extend(project(member, path, depth + 1, keep, leaf).map(|value| (name.clone(), value)));
                path.truncate(len);
            }
            (!kept.is_empty()).then_some(OwnedValue::Object(kept))
        }
        Json::Null => None,
        other => keep(path).then(|| leaf(other)).flatten(),
    }
}

fn exact_leaf(value: &Json) -> Option<OwnedValue> {
    match value {
        Json::Bool(b) => Some(OwnedValue::Bool(*b)),
        Json::String(text) => Some(OwnedValue::Str(exact_term(text))),
        Json::Number(n) => n
            .as_u64()
            .map(OwnedValue::U64)
            .or_else(|| n.as_i64().map(OwnedValue::I64))
            .or_else(|| n.as_f64().map(OwnedValue::F64)),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

fn text_leaf(value: &Json) -> Option<OwnedValue> {
    value.as_str().map(|text| OwnedValue::Str(text.to_owned()))
}

/// The term of a whole value: itself, or a prefix and its hash where it is long.
pub(crate) fn exact_term(text: &str) -> String {
    if text.len() <= EXACT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=EXACT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}\u{10ffff}{}", text.get(..end).unwrap_or_default(), Fingerprint::of(text.as_bytes()))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    tidegate_core::span::Hex(bytes).to_string()
}

/// The order-preserving key of a number in a column of this kind; `None` if it does not fit the kind.
pub(crate) fn number_key(kind: Kind, atomic: &AtomicValue) -> Option<u64> {
    use atomic_value::Value;
    Some(match (kind, atomic.value.as_ref()?) {
        (Kind::Bool, Value::BoolValue(b)) => u64::from(*b),
        (Kind::Int | Kind::Timestamp, Value::Int64Value(n)) => int_key(*n),
        (Kind::Int | Kind::Timestamp, Value::Uint64Value(n)) => int_key(i64::try_from(*n).ok()?),
        (Kind::UInt, Value::Uint64Value(n)) => *n,
        (Kind::UInt, Value::Int64Value(n)) => u64::try_from(*n).ok()?,
        (Kind::Float, Value::FloatValue(x)) => float_key(f64::from(*x)),
        (Kind::Float, Value::DoubleValue(x)) => float_key(*x),
        _ => return None,
    })
}

/// An atomic value as JSON; bytes as lower-case hexadecimal.
pub(crate) fn atomic_json(atomic: &AtomicValue) -> Json {
    use atomic_value::Value;
    match &atomic.value {
        None | Some(Value::NullValue(_)) => Json::Null,
        Some(Value::BoolValue(b)) => Json::Bool(*b),
        Some(Value::Int64Value(n)) => Json::from(*n),
        Some(Value::Uint64Value(n)) => Json::from(*n),
        Some(Value::FloatValue(x)) => Json::from(*x),
        Some(Value::DoubleValue(x)) => Json::from(*x),
        Some(Value::StringValue(text)) => Json::String(text.clone()),
        Some(Value::BytesValue(bytes)) => Json::String(hex(bytes)),
    }
}

/// A flat object as JSON.
pub(crate) fn object_json(object: &ObjectValue) -> Json {
    Json::Object(object.members.iter().map(|(name, value)| (name.clone(), atomic_json(value))).collect())
}

/// The components of a vector in whatever element type it came; `None` if its framing is wrong.
pub(crate) fn components(vector: &VectorValue) -> Option<Vec<f32>> {
    match vector.value.as_ref()? {
        vector_value::Value::F32Vector(floats) => Some(floats.values.clone()),
        vector_value::Value::F16Vector(bytes) => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            rest.is_empty().then(|| pairs.iter().map(|pair| half(u16::from_le_bytes(*pair))).collect())
        }
        vector_value::Value::QuantizedVector(quantized) => {
            let code = |byte: &u8| f32::from(byte.cast_signed()) * quantized.scale + quantized.offset;
            Some(quantized.codes.iter().map(code).collect())
        }
    }
}

/// IEEE 754 binary16 as binary32: 1 sign bit, 5 exponent bits (bias 15), 10 fraction bits.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f32::from(bits & 0x3ff) / 1024.0;
    match (bits >> 10) & 0x1f {
        0 => sign * fraction * 2.0_f32.powi(-14),
        31 if bits & 0x3ff == 0 => sign * f32::INFINITY,
        31 => f32::NAN,
        exponent => sign * (1.0 + fraction) * 2.0_f32.powi(i32::from(exponent) - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_floats_read_as_the_standard_says() {
        // Encodings from the definition of binary16: 1.0, −2.0, the largest finite, the smallest subnormal,
        // 1/3.
        assert_eq!([0x3c00, 0xc000, 0x7bff].map(half), [1.0, -2.0, 65504.0]);
        assert_eq!(half(0x0001), 2.0_f32.powi(-24));
        assert!((half(0x3555) - 1.0 / 3.0).abs() < 1e-3);
        assert!(half(0x7e00).is_nan() && half(0x7c00).is_infinite());
    }

    #[test]
    fn long_values_keep_their_prefix_and_stay_distinct() {
        let (a, b) = ("ä".repeat(300), "ä".repeat(300) + "x");
        assert_ne!(exact_term(&a), exact_term(&b));
        assert!(exact_term(&a).starts_with(&"ä".repeat(128)) && exact_term(&a).len() < 400);
        assert_eq!(exact_term("short"), "short");
    }
}
