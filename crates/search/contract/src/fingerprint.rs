//! Fingerprints: BLAKE3-256 over a canonical byte form, so that every language and every retry agrees
//! (`spec/cdc-adapter.md` §5.2). The byte form is defined in `docs/search-contract.md`;
//! `vectors/fingerprints.json` holds examples to check against.
//!
//! In short: numbers little-endian, text and bytes with a 64-bit length before them, a tag byte before each
//! value, floats in canonical bits, map keys in ascending byte order.

use std::fmt;

use tidegate_proto::searchfabric::v1::{
    AtomicValue, FieldData, MutationBatch, MutationEntry, QuantizedVector, RowMutation, atomic_value,
    document_id, field_data, mutation_entry, vector_value,
};

use crate::error::{Breach, SfErrorCode};
use crate::float::{f16_bits, f32_bits, f64_bits};

/// Hexadecimal digits of a fingerprint.
pub const HEX_DIGITS: usize = 64;
const BATCH_DOMAIN: &str = "searchfabric.v1.batch";
const ROW_DOMAIN: &str = "searchfabric.v1.row";
const ABSENT: u8 = 0xFF;

/// A 256-bit fingerprint. Displayed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Wraps raw bytes, for reading a stored fingerprint back.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The fingerprint of arbitrary bytes; for identities derived from other identities.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads 64 lower-case hexadecimal digits. A prefix, an upper-case digit or another width is refused
    /// (`spec/cdc-adapter.md` §5.3).
    ///
    /// # Errors
    /// `SF_CHECKSUM_MALFORMED` at `path`.
    pub fn parse(hex: &str, path: &str) -> Result<Self, Breach> {
        let malformed = || {
            let detail = "must be 64 lower-case hexadecimal digits without prefix";
            Breach::new(SfErrorCode::SfChecksumMalformed, path, detail)
        };
        if hex.len() != HEX_DIGITS || hex.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(malformed());
        }
        blake3::Hash::from_hex(hex).map(|hash| Self(*hash.as_bytes())).map_err(|_| malformed())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The fingerprint of a batch's content. `meta`, epoch and sequence number, `batch_id`, `policy`,
/// `resume_token` and
/// `RowMutation.commit_ts` do not take part.
pub fn batch_fingerprint(batch: &MutationBatch) -> Fingerprint {
    let mut form = Form::default();
    form.text(BATCH_DOMAIN);
    let collection = batch.collection.as_ref();
    form.text(collection.map_or("", |c| c.namespace.as_str()));
    form.text(collection.map_or("", |c| c.collection_id.as_str()));
    form.text(batch.stream_identity.as_ref().map_or("", |s| s.source_partition.as_str()));
    form.text(&batch.schema_generation_token);
    form.len(batch.entries.len());
    for entry in &batch.entries {
        form.entry(entry);
    }
    form.finish()
}

/// The fingerprint of what a row mutation says about its document, without version and schema version: two
/// mutations of one document at one `commit_ts` must have the same.
pub fn row_digest(row: &RowMutation) -> Fingerprint {
    let mut form = Form::default();
    form.text(ROW_DOMAIN);
    form.row_content(row);
    form.finish()
}

/// The canonical byte form, growing.
#[derive(Default)]
struct Form(Vec<u8>);

impl Form {
    fn finish(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }

    fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    fn len(&mut self, n: usize) {
        // usize has at most 64 bits on every platform Rust supports.
        self.u64(n as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn entry(&mut self, entry: &MutationEntry) {
        match &entry.entry {
            None => self.tag(ABSENT),
            Some(mutation_entry::Entry::RowMutation(row)) => {
                self.tag(1);
                match row.schema_version {
                    None => self.tag(ABSENT),
                    Some(version) => {
                        self.tag(1);
                        self.u32(version);
                    }
                }
                self.row_content(row);
            }
            Some(mutation_entry::Entry::ProgressMark(mark)) => {
                self.tag(2);
                self.u64(mark.resolved_ts);
                self.len(mark.watermarks.len());
                for watermark in &mark.watermarks {
                    self.u32(watermark.modality.cast_unsigned());
                    self.u64(watermark.applied_ts);
                }
            }
            Some(mutation_entry::Entry::BarrierMark(mark)) => {
                self.tag(3);
                self.u64(mark.barrier_ts);
                self.text(&mark.fence_id);
            }
        }
    }

    fn row_content(&mut self, row: &RowMutation) {
        self.u32(row.kind.cast_unsigned());
        match row.doc_id.as_ref().and_then(|id| id.id_value.as_ref()) {
            None => self.tag(ABSENT),
            Some(document_id::IdValue::U64(id)) => {
                self.tag(1);
                self.u64(*id);
            }
        }
        self.map(row.fields.iter(), Self::field);
    }

    /// A map, its keys in ascending byte order whatever order they are stored in.
    fn map<'a, V: 'a>(
        &mut self,
        members: impl Iterator<Item = (&'a String, &'a V)>,
        write: impl Fn(&mut Self, &V),
    ) {
        let mut sorted: Vec<_> = members.collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        self.len(sorted.len());
        for (key, value) in sorted {
            self.text(key);
            write(self, value);
        }
    }

    fn field(&mut self, data: &FieldData) {
        match &data.value {
            None => self.tag(ABSENT),
            Some(field_data::Value::AtomicValue(value)) => self.atomic(value),
            Some(field_data::Value::VectorValue(vector)) => match &vector.value {
                None => self.tag(ABSENT),
                Some(vector_value::Value::F32Vector(v)) => self.f32_vector(&v.values),
                Some(vector_value::Value::F16Vector(bytes)) => self.f16_vector(bytes),
                Some(vector_value::Value::QuantizedVector(v)) => self.quantized(v),
            },
            Some(field_data::Value::ListValue(list)) => {
                self.tag(11);
                self.len(list.values.len());
                for value in &list.values {
                    self.atomic(value);
                }
            }
            Some(field_data::Value::ObjectArrayValue(array)) => {
                self.tag(12);
                self.len(array.objects.len());
                for object in &array.objects {
                    self.map(object.members.iter(), Self::atomic);
                }
            }
        }
    }

    fn atomic(&mut self, value: &AtomicValue) {
        use atomic_value::Value as V;
        match &value.value {
            None => self.tag(ABSENT),
            Some(V::NullValue(_)) => self.tag(0),
            Some(V::BoolValue(b)) => {
                self.tag(1);
                self.tag(u8::from(*b));
            }
            Some(V::Int64Value(n)) => {
                self.tag(2);
                self.u64(n.cast_unsigned());
            }
            Some(V::Uint64Value(n)) => {
                self.tag(3);
                self.u64(*n);
            }
            Some(V::FloatValue(n)) => {
                self.tag(4);
                self.u32(f32_bits(*n));
            }
            Some(V::DoubleValue(n)) => {
                self.tag(5);
                self.u64(f64_bits(*n));
            }
            Some(V::StringValue(s)) => {
                self.tag(6);
                self.text(s);
            }
            Some(V::BytesValue(b)) => {
                self.tag(7);
                self.bytes(b);
            }
        }
    }

    fn f32_vector(&mut self, values: &[f32]) {
        self.tag(8);
        self.len(values.len());
        for value in values {
            self.u32(f32_bits(*value));
        }
    }

    /// A last odd byte, which validation refuses, still counts.
    fn f16_vector(&mut self, bytes: &[u8]) {
        self.tag(9);
        self.len(bytes.len());
        let (pairs, rest) = bytes.as_chunks::<2>();
        for pair in pairs {
            self.0.extend_from_slice(&f16_bits(u16::from_le_bytes(*pair)).to_le_bytes());
        }
        self.0.extend_from_slice(rest);
    }

    fn quantized(&mut self, vector: &QuantizedVector) {
        self.tag(10);
        self.u32(vector.dimensions);
        self.bytes(&vector.codes);
        self.u32(f32_bits(vector.scale));
        self.u32(f32_bits(vector.offset));
    }
}
