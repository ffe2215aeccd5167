//! Protocols whose processes are values of a frame.

/// Implements `Protocol` for `$name`, which wraps a value of type `$process`. `$item` states what does not follow from
/// that type. The type `Config` of the protocol must be in scope.
macro_rules! delegate_protocol {
    ($name:ident, $process:ty, { $($item:item)* }) => {
        impl faultline_core::Protocol for $name {
            type Config = Config;
            const FIFO: bool = true;
            $($item)*

            fn start(
                start: faultline_core::LifeStart<Config>,
                now: faultline_core::Time,
                host: &mut dyn faultline_core::Host<Self>,
            ) -> Self {
                $name(<$process>::start(start, now, host))
            }

            fn handle(
                &mut self,
                input: faultline_core::Input<Self>,
                now: faultline_core::Time,
                host: &mut dyn faultline_core::Host<Self>,
            ) {
                self.0.handle(input, now, host);
            }

            fn next_deadline(&self) -> Option<faultline_core::Time> {
                self.0.next_deadline()
            }

            fn gauges(&self) -> faultline_core::Gauges {
                self.0.gauges()
            }
        }
    };
}

pub(crate) use delegate_protocol;
