//! All protocols for processes that exchange messages, as a single type, for which drivers are compiled once.

pub(crate) mod carrier;

use std::sync::Arc;

use faultline_core::{
    Footprint, Gauges, Host, Input, LifeStart, Position, Promises, Protocol, ProtocolTypes, Role, Stamp, Time,
};
use faultline_protocols::{
    chandy_lamport, coordinated, full_logging, hc3i, hydee, independent, none, pessimistic_logging, spbc,
};
use serde::{Deserialize, Serialize};

use crate::custom::Erased;
use carrier::Carrier;

/// Declares the types of [`AnyProtocol`]: for each protocol, the name of its variants and its type.
macro_rules! protocols {
    ($($name:ident: $protocol:ty,)*) => {
        /// One process under any protocol.
        #[derive(Clone, Debug)]
        #[expect(missing_docs, reason = "each variant is named after its protocol")]
        #[allow(clippy::large_enum_variant, reason = "a pointer to the protocol would cost a cache line per input")]
        pub enum AnyProtocol { $($name($protocol),)* }

        /// The parameters of any protocol.
        #[derive(Clone, Debug)]
        #[expect(missing_docs, reason = "each variant is named after its protocol")]
        pub enum AnyConfig { $($name(Arc<<$protocol as Protocol>::Config>),)* }

        /// A message of any protocol.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant is named after its protocol")]
        pub enum AnyControl { $($name(<$protocol as ProtocolTypes>::Control),)* }

        /// Data that any protocol piggybacks on an application message.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant is named after its protocol")]
        pub enum AnyStamp { $($name(<$protocol as Protocol>::Stamp),)* }

        /// The header of an image of any protocol.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant is named after its protocol")]
        pub enum AnyHead { $($name(Arc<<$protocol as ProtocolTypes>::Head>),)* }

        /// Any protocol's part of a saved state.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each variant is named after its protocol")]
        pub enum AnySaved { $($name(Arc<<$protocol as ProtocolTypes>::Saved>),)* }

        impl Stamp for AnyStamp {
            fn position(&self) -> Position {
                match self { $(AnyStamp::$name(stamp) => stamp.position(),)* }
            }
        }

        impl ProtocolTypes for AnyProtocol {
            type Control = AnyControl;
            type Head = AnyHead;
            type Saved = AnySaved;

            fn add_to(head: &AnyHead, saved: &AnySaved, footprint: &mut Footprint) {
                match (head, saved) {
                    $((AnyHead::$name(head), AnySaved::$name(saved)) => {
                        footprint.add_arc(head);
                        footprint.add_arc(saved);
                        <$protocol>::add_to(head, saved, footprint);
                    })*
                    _ => foreign(),
                }
            }

            fn saved_len(saved: &AnySaved) -> u64 {
                match saved { $(AnySaved::$name(saved) => <$protocol>::saved_len(saved),)* }
            }
        }

        impl Protocol for AnyProtocol {
            type Config = AnyConfig;
            type Stamp = AnyStamp;
            // Unused: the values depend on the protocol, and the functions below return them.
            const FIFO: bool = false;
            const REPEATS: bool = false;

            fn is_fifo(config: &AnyConfig) -> bool {
                match config { $(AnyConfig::$name(config) => <$protocol>::is_fifo(config),)* }
            }

            fn repeats(config: &AnyConfig) -> bool {
                match config { $(AnyConfig::$name(config) => <$protocol>::repeats(config),)* }
            }

            fn promises(config: &AnyConfig) -> Promises {
                match config { $(AnyConfig::$name(config) => <$protocol>::promises(config),)* }
            }

            fn extra_processes(config: &AnyConfig) -> Vec<Role> {
                match config { $(AnyConfig::$name(config) => <$protocol>::extra_processes(config),)* }
            }

            fn start(start: LifeStart<AnyConfig>, now: Time, host: &mut dyn Host<AnyProtocol>) -> AnyProtocol {
                match &*start.config {
                    $(AnyConfig::$name(config) => {
                        let config = config.clone();
                        AnyProtocol::$name(carrier::start(start, config, now, host))
                    })*
                }
            }

            fn handle(&mut self, input: Input<AnyProtocol>, now: Time, host: &mut dyn Host<AnyProtocol>) {
                match self { $(AnyProtocol::$name(it) => carrier::handle(it, input, now, host),)* }
            }

            fn next_deadline(&self) -> Option<Time> {
                match self { $(AnyProtocol::$name(it) => it.next_deadline(),)* }
            }

            fn gauges(&self) -> Gauges {
                match self { $(AnyProtocol::$name(it) => it.gauges(),)* }
            }

            fn control_kind(message: &AnyControl) -> &'static str {
                match message { $(AnyControl::$name(message) => <$protocol>::control_kind(message),)* }
            }
        }

        $(impl Carrier<$protocol> for AnyProtocol {
            fn carry_control(message: <$protocol as ProtocolTypes>::Control) -> AnyControl {
                AnyControl::$name(message)
            }

            fn carry_stamp(stamp: <$protocol as Protocol>::Stamp) -> AnyStamp {
                AnyStamp::$name(stamp)
            }

            fn carry_head(head: Arc<<$protocol as ProtocolTypes>::Head>) -> AnyHead {
                AnyHead::$name(head)
            }

            fn carry_saved(saved: Arc<<$protocol as ProtocolTypes>::Saved>) -> AnySaved {
                AnySaved::$name(saved)
            }

            fn control(message: AnyControl) -> <$protocol as ProtocolTypes>::Control {
                if let AnyControl::$name(message) = message { message } else { foreign() }
            }

            fn stamp(stamp: AnyStamp) -> <$protocol as Protocol>::Stamp {
                if let AnyStamp::$name(stamp) = stamp { stamp } else { foreign() }
            }

            fn head(head: &AnyHead) -> Arc<<$protocol as ProtocolTypes>::Head> {
                if let AnyHead::$name(head) = head { head.clone() } else { foreign() }
            }

            fn saved(saved: &AnySaved) -> Arc<<$protocol as ProtocolTypes>::Saved> {
                if let AnySaved::$name(saved) = saved { saved.clone() } else { foreign() }
            }
        })*
    };
}

protocols! {
    Hc3i: hc3i::Hc3i,
    Hydee: hydee::Hydee,
    Spbc: spbc::Spbc,
    FullLogging: full_logging::FullLogging,
    PessimisticLogging: pessimistic_logging::PessimisticLogging,
    Independent: independent::Independent,
    Coordinated: coordinated::Coordinated,
    ChandyLamport: chandy_lamport::ChandyLamport,
    None: none::NoProtocol,
    Erased: Erased,
}

/// Called for a value of a protocol that is not the run's.
#[cold]
fn foreign() -> ! {
    panic!("all processes have the same protocol")
}
