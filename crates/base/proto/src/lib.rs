//! Generated protobuf types and gRPC stubs, one module for each protobuf package under `proto/`: [`pdpb`],
//! [`keyspacepb`], [`metapb`], [`kvrpcpb`], [`errorpb`], [`tikvpb`], [`cdcpb`], [`health`] and the search
//! contract's own. Fields of type `bytes` are [`bytes::Bytes`]: decoding from a `Bytes` shares the message's
//! buffer instead of copying it.
//!
//! *Invariant:* this is the only crate whose build needs prost. It holds no behaviour of its own.

#[allow(
    missing_docs,
    unreachable_pub,
    rust_2018_idioms,
    clippy::all,
    clippy::indexing_slicing,
    rustdoc::all,
    reason = "generated code follows its generator's style; the .proto files carry the documentation"
)]
mod packages {
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
}

pub use packages::grpc::health::v1 as health;
pub use packages::*;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use crate::{cdcpb, pdpb};

    #[test]
    fn a_decoded_row_shares_the_bytes_of_its_message() {
        let row = cdcpb::event::Row { key: Bytes::from_static(b"t\x80"), ..Default::default() };
        let message = Bytes::from(row.encode_to_vec());
        let decoded = cdcpb::event::Row::decode(message.clone()).expect("own encoding decodes");
        assert!(message.as_ptr_range().contains(&decoded.key.as_ptr()));
    }

    #[test]
    fn field_numbers_are_the_references() {
        // reference/pd-protocol.md §8.1: service_id:2 bytes, TTL:3, safe_point:4; tag = number << 3 | wire
        // type.
        let request = pdpb::UpdateServiceGcSafePointRequest {
            header: None,
            service_id: Bytes::from_static(b"s"),
            ttl: 5,
            safe_point: 6,
        };
        assert_eq!(request.encode_to_vec(), [0x12, 1, b's', 0x18, 5, 0x20, 6]);
    }
}
