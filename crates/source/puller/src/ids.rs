//! Ids that only the puller hands out.

use std::fmt;

macro_rules! local_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

local_id!(
    /// A subscription of one puller; counted from 1 and never reused.
    SubscriptionId
);
local_id!(
    /// One registration of one region: from the moment it is asked for until it fails. Unique within its
    /// subscription, so that late events of an earlier one are recognised.
    RegistrationId
);
local_id!(
    /// What the protocol calls `request_id`. Unique within a puller; a subscription uses more than one if
    /// registrations had to be withdrawn, because late events of a withdrawn one carry its old id
    /// (`reference/cdc-protocol.md` §7.3).
    RequestId
);

/// Request ids that one subscription can use up before it would run into the next one's.
const REQUESTS_PER_SUBSCRIPTION: u64 = 1 << 24;

impl SubscriptionId {
    /// The request id of this subscription after `withdrawals` withdrawn registrations.
    pub fn request(self, withdrawals: u64) -> RequestId {
        RequestId(self.0 * REQUESTS_PER_SUBSCRIPTION + withdrawals % REQUESTS_PER_SUBSCRIPTION)
    }
}
