//! The published vectors (`vectors/*.json`), whose expected values come from an implementation in another
//! language (`vectors/check.py`).

#![allow(clippy::panic, reason = "a helper that cannot read a vector ends its test")]

use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_contract::fingerprint::{batch_fingerprint, row_digest};
use tidegate_contract::json;
use tidegate_proto::searchfabric::v1::{
    AtomicValue, BarrierMark, CollectionRef, DocumentId, FieldData, FloatVector, ListValue,
    ModalityWatermark, MutationBatch, MutationEntry, NullValue, ObjectArrayValue, ObjectValue, ProgressMark,
    QuantizedVector, RowMutation, RowMutationKind, StreamIdentity, VectorValue, atomic_value, document_id,
    field_data, mutation_entry::Entry, vector_value,
};

#[derive(Deserialize)]
struct BatchCase {
    name: String,
    batch: Batch,
    expect: BatchExpect,
}

#[derive(Deserialize)]
struct Batch {
    namespace: String,
    collection_id: String,
    source_partition: String,
    schema_generation_token: String,
    entries: Vec<Map<String, Value>>,
}

#[derive(Deserialize)]
struct BatchExpect {
    fingerprint: String,
    row_digests: Vec<String>,
}

#[derive(Deserialize)]
struct JsonCase {
    name: String,
    json: String,
    expect: JsonExpect,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum JsonExpect {
    Canonical(String),
    Error(String),
}

fn load<T: serde::de::DeserializeOwned>(file: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(file);
    serde_json::from_str(&std::fs::read_to_string(path).expect("the file")).expect("vectors")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn number<T: std::str::FromStr>(value: &Value) -> T {
    text(value).parse().unwrap_or_else(|_| panic!("no number: {value}"))
}

fn hex(value: &Value) -> Bytes {
    let digits = text(value).as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex");
    digits.map(byte).collect()
}

fn f32_of(value: &Value) -> f32 {
    f32::from_bits(u32::from_str_radix(text(value), 16).expect("bits"))
}

fn only(map: &Map<String, Value>) -> (&str, &Value) {
    map.iter().next().map(|(kind, value)| (kind.as_str(), value)).expect("one member")
}

fn atomic(value: &Value) -> Option<AtomicValue> {
    use atomic_value::Value as V;
    let (kind, x) = only(value.as_object().expect("an object"));
    let value = match kind {
        "null" => V::NullValue(NullValue::Null.into()),
        "bool" => V::BoolValue(x.as_bool().expect("a bool")),
        "i64" => V::Int64Value(number(x)),
        "u64" => V::Uint64Value(number(x)),
        "f32" => V::FloatValue(f32_of(x)),
        "f64" => V::DoubleValue(f64::from_bits(u64::from_str_radix(text(x), 16).expect("bits"))),
        "string" => V::StringValue(text(x).to_owned()),
        "bytes" => V::BytesValue(hex(x)),
        _ => return None,
    };
    Some(AtomicValue { value: Some(value) })
}

fn vector(kind: &str, x: &Value) -> Option<vector_value::Value> {
    Some(match kind {
        "f32_vector" => vector_value::Value::F32Vector(FloatVector {
            values: x.as_array().expect("a list").iter().map(f32_of).collect(),
        }),
        "f16_vector" => vector_value::Value::F16Vector(hex(x)),
        "quantized_vector" => vector_value::Value::QuantizedVector(QuantizedVector {
            dimensions: x["dimensions"].as_u64().and_then(|n| u32::try_from(n).ok()).expect("small"),
            codes: hex(&x["codes"]),
            scale: f32_of(&x["scale"]),
            offset: f32_of(&x["offset"]),
        }),
        _ => return None,
    })
}

fn field(value: &Value) -> FieldData {
    let (kind, x) = only(value.as_object().expect("an object"));
    let atomics = |list: &Value| -> Vec<AtomicValue> {
        list.as_array().expect("a list").iter().map(|v| atomic(v).expect("an atomic")).collect()
    };
    let object = |object: &Value| ObjectValue {
        members: object
            .as_object()
            .expect("an object")
            .iter()
            .map(|(name, v)| (name.clone(), atomic(v).expect("an atomic")))
            .collect(),
    };
    let data = match (atomic(value), vector(kind, x)) {
        (Some(value), _) => field_data::Value::AtomicValue(value),
        (_, Some(value)) => field_data::Value::VectorValue(VectorValue { value: Some(value) }),
        _ if kind == "list" => field_data::Value::ListValue(ListValue { values: atomics(x) }),
        _ => field_data::Value::ObjectArrayValue(ObjectArrayValue {
            objects: x.as_array().expect("a list").iter().map(object).collect(),
        }),
    };
    FieldData { value: Some(data) }
}

fn row(kind: RowMutationKind, x: &Value) -> RowMutation {
    let fields = x.get("fields").and_then(Value::as_object).cloned().unwrap_or_default();
    RowMutation {
        kind: kind.into(),
        doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(number(&x["doc"]))) }),
        commit_ts: number(&x["commit_ts"]),
        schema_version: x.get("schema_version").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
        fields: fields.iter().map(|(name, value)| (name.clone(), field(value))).collect(),
    }
}

fn watermark(pair: &Value) -> ModalityWatermark {
    let modality = pair[0].as_i64().and_then(|n| i32::try_from(n).ok()).expect("small");
    ModalityWatermark { modality, applied_ts: number(&pair[1]) }
}

fn entry(map: &Map<String, Value>) -> Entry {
    let (kind, x) = only(map);
    match kind {
        "upsert" => Entry::RowMutation(row(RowMutationKind::Upsert, x)),
        "patch" => Entry::RowMutation(row(RowMutationKind::Patch, x)),
        "delete" => Entry::RowMutation(row(RowMutationKind::Delete, x)),
        "progress" => Entry::ProgressMark(ProgressMark {
            resolved_ts: number(&x["resolved_ts"]),
            watermarks: x
                .get("watermarks")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(watermark)
                .collect(),
        }),
        "barrier" => Entry::BarrierMark(BarrierMark {
            barrier_ts: number(&x["barrier_ts"]),
            fence_id: text(&x["fence_id"]).to_owned(),
        }),
        other => panic!("unknown entry {other}"),
    }
}

impl Batch {
    fn message(&self) -> MutationBatch {
        MutationBatch {
            collection: Some(CollectionRef {
                namespace: self.namespace.clone(),
                collection_id: self.collection_id.clone(),
            }),
            stream_identity: Some(StreamIdentity {
                source_partition: self.source_partition.clone(),
                source_epoch: 3,
                source_seq: 17,
            }),
            schema_generation_token: self.schema_generation_token.clone(),
            entries: self.entries.iter().map(|e| MutationEntry { entry: Some(entry(e)) }).collect(),
            ..MutationBatch::default()
        }
    }
}

#[test]
fn batches_have_the_fingerprints_that_another_language_computed() {
    let cases: Vec<BatchCase> = load("fingerprints.json");
    for case in &cases {
        let batch = case.batch.message();
        assert_eq!(batch_fingerprint(&batch).to_string(), case.expect.fingerprint, "{}", case.name);
        let digests = batch.entries.iter().filter_map(|e| match &e.entry {
            Some(Entry::RowMutation(row)) => Some(row_digest(row).to_string()),
            _ => None,
        });
        assert_eq!(digests.collect::<Vec<_>>(), case.expect.row_digests, "{}", case.name);
    }
    assert_eq!(cases.len(), 14);
}

#[test]
fn json_has_the_canonical_form_that_another_language_computed() {
    let cases: Vec<JsonCase> = load("json.json");
    for case in &cases {
        let got = json::canonical(&case.json).map_err(|e| e.code().as_str_name());
        let expect = match &case.expect {
            JsonExpect::Canonical(text) => Ok(text.as_str()),
            JsonExpect::Error(code) => Err(code.as_str()),
        };
        assert_eq!(got.as_deref().map_err(|code| *code), expect, "{}", case.name);
    }
    assert_eq!(cases.len(), 19);
}
