//! Protocols and applications from other crates.
//!
//! Before a program reads the first file, it registers the protocols and applications that it was built with. A file
//! then refers to them by name. Their types are erased ([`Erased`], [`Custom`]), so every operation on a federation is
//! compiled once for all of them, not once for each.

mod protocol;
#[cfg(test)]
mod tests;
mod wire;

use std::any::TypeId;
use std::cell::RefCell;
use std::sync::RwLock;

use faultline_api::resource::custom::{
    Declared, InvalidParameter, KnownApplication, KnownParameters, KnownProtocol, register_application,
    register_protocol,
};
use faultline_api::resource::{self, Collection, Demand, FederationSpec, Logs};
use faultline_core::{Application, Promises, Protocol};
use faultline_workloads::custom::Custom;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value};

pub use protocol::{Erased, ErasedConfig};

/// Parameters in a federation file. Fields with a default may be omitted. A parameter with the same name as an option
/// of the built-in protocols also has the same meaning: `checkpointEvery`, `checkpointEveryIn`, `collectEvery`,
/// `replicas`, `replicateTo`, `logMemory`. Searches choose values for such parameters, comparisons apply them to every
/// compared protocol that has them, and the checker reads them. No parameter may be called `name`.
pub trait Parameters: Serialize + DeserializeOwned + JsonSchema + 'static {}
impl<T: Serialize + DeserializeOwned + JsonSchema + 'static> Parameters for T {}

/// A protocol that a federation file can name: `protocol: { custom: { name: …, … } }`.
pub trait CustomProtocol: Protocol<Config: Send + Sync> + Send + Sync + 'static {
    /// The name in files: at most 40 lower-case letters, digits and hyphens, different from that of any other protocol.
    const NAME: &'static str;
    /// The protocol's requirement on a program's re-execution. Random federations run only applications that meet it.
    const DEMAND: Demand = if Self::REPEATS { Demand::AnyOrder } else { Demand::Nothing };
    /// The messages that the protocol logs. Comparisons derive the number of logged bytes from this.
    const LOGS: Logs = Logs::Nothing;
    /// When the protocol collects garbage. Unless it is unspecified, the checker judges whether every storage removes
    /// the parts that no recovery can need if each recovery restores the newest consistent checkpoints.
    const COLLECTION: Collection = Collection::Unspecified;
    /// The fields of `custom` in the federation file, other than `name`.
    type Parameters: Parameters;

    /// Translates the parameters into the configuration for a federation.
    ///
    /// May read the fields of `federation`, but must not call methods that depend on the declaration of the protocol
    /// ([`scope`](FederationSpec::scope), [`extra_processes`](FederationSpec::extra_processes) and
    /// [`Names::of`](faultline_api::Names::of)): these call this function.
    ///
    /// # Errors
    ///
    /// Fails if the parameters are invalid or do not suit the federation. The error message is a clause without a full
    /// stop.
    fn configure(parameters: Self::Parameters, federation: &FederationSpec) -> Result<Self::Config, String>;
}

/// An application that a federation file can name: `application: { custom: { name: …, … } }`.
pub trait CustomApplication: 'static {
    /// The name in files: at most 40 lower-case letters, digits and hyphens.
    const NAME: &'static str;
    /// The fields of `custom` in the federation file, other than `name`.
    type Parameters: Parameters;
    /// The type of one rank: `Performer<Self>` for a program on the messaging interface, or another [`Application`].
    type Rank: Application<Config: Send + Sync> + Send + Sync + 'static;

    /// Translates the parameters into the configuration for a federation.
    ///
    /// # Errors
    ///
    /// Fails if the parameters are invalid or do not suit the federation. The error message is a clause without a full
    /// stop.
    fn configure(
        parameters: Self::Parameters,
        federation: &FederationSpec,
    ) -> Result<<Self::Rank as Application>::Config, String>;
}

type Configure<C> = fn(&Map<String, Value>, &FederationSpec) -> Result<C, InvalidParameter>;

/// A protocol of this program.
struct Added {
    /// The type of the protocol.
    of: TypeId,
    name: &'static str,
    configure: Configure<ErasedConfig>,
}

static PROTOCOLS: RwLock<Vec<Added>> = RwLock::new(Vec::new());
static APPLICATIONS: RwLock<Vec<(&'static str, Configure<Custom>)>> = RwLock::new(Vec::new());

/// Adds a protocol to this program, unless the program already contains it.
///
/// # Panics
///
/// Panics if the name is invalid, or is the name of another protocol.
pub fn add_protocol<P: CustomProtocol>() {
    assert_is_name(P::NAME);
    let mut protocols = PROTOCOLS.write().expect("no earlier call has panicked");
    let of = TypeId::of::<P>();
    if protocols.iter().any(|it| it.of == of) {
        return;
    }
    let (name, demand, logs, collection) = (P::NAME, P::DEMAND, P::LOGS, P::COLLECTION);
    let check = |parameters: &Map<String, Value>, spec: &FederationSpec| {
        configured_protocol::<P>(parameters, spec).map(drop)
    };
    let parameters =
        KnownParameters { schema: schema::<P::Parameters>, complete: complete::<P::Parameters>, check };
    let declare = |parameters: &Map<String, Value>, spec: &FederationSpec| {
        let config = configured_protocol::<P>(parameters, spec)?;
        let (promises, extra_processes) = (Promises::of::<Erased>(&config), Erased::extra_processes(&config));
        Ok(Declared { promises, extra_processes })
    };
    register_protocol(KnownProtocol { name, demand, logs, collection, parameters, declare });
    protocols.push(Added { of, name, configure: configured_protocol::<P> });
}

/// Adds an application to this program.
///
/// # Panics
///
/// Panics if the name is invalid or already taken.
pub fn add_application<A: CustomApplication>() {
    assert_is_name(A::NAME);
    let name = A::NAME;
    let check = |parameters: &Map<String, Value>, spec: &FederationSpec| {
        configured_application::<A>(parameters, spec).map(drop)
    };
    let parameters =
        KnownParameters { schema: schema::<A::Parameters>, complete: complete::<A::Parameters>, check };
    register_application(KnownApplication { name, parameters });
    APPLICATIONS
        .write()
        .expect("nothing panics while it is locked")
        .push((name, configured_application::<A>));
}

fn assert_is_name(name: &str) {
    let allowed = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    let is_name = (1..=40).contains(&name.len()) && name.chars().all(allowed);
    assert!(is_name, "`{name}` is not a valid name: use at most 40 lower-case letters, digits and hyphens");
}

/// Returns the protocol that a federation names; `None` if this program does not contain it.
pub(crate) fn protocol(
    custom: &resource::Custom,
    spec: &FederationSpec,
) -> Option<Result<ErasedConfig, InvalidParameter>> {
    let protocols = PROTOCOLS.read().expect("no earlier call has panicked");
    let Added { configure, .. } = protocols.iter().find(|it| it.name == custom.name)?;
    Some(configure(&custom.parameters, spec))
}

/// Returns the application that a federation names; `None` if this program does not contain it.
pub(crate) fn application(
    custom: &resource::Custom,
    spec: &FederationSpec,
) -> Option<Result<Custom, InvalidParameter>> {
    let applications = APPLICATIONS.read().expect("nothing panics while it is locked");
    let (_, configure) = applications.iter().find(|(name, _)| *name == custom.name)?;
    Some(configure(&custom.parameters, spec))
}

fn configured_protocol<P: CustomProtocol>(
    parameters: &Map<String, Value>,
    spec: &FederationSpec,
) -> Result<ErasedConfig, InvalidParameter> {
    let config = P::configure(parsed(parameters)?, spec).map_err(unsuitable)?;
    Ok(ErasedConfig::new::<P>(config))
}

fn configured_application<A: CustomApplication>(
    parameters: &Map<String, Value>,
    spec: &FederationSpec,
) -> Result<Custom, InvalidParameter> {
    let config = A::configure(parsed(parameters)?, spec).map_err(unsuitable)?;
    Ok(Custom::new::<A::Rank>(config))
}

fn unsuitable(message: String) -> InvalidParameter {
    InvalidParameter { parameter: None, message }
}

fn schema<T: Parameters>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

fn complete<T: Parameters>(parameters: &Map<String, Value>) -> Result<Map<String, Value>, InvalidParameter> {
    match serde_json::to_value(parsed::<T>(parameters)?) {
        Ok(Value::Object(all)) => Ok(all),
        Ok(_) | Err(_) => Err(unsuitable("the parameters do not serialise to an object".to_owned())),
    }
}

/// Parses parameters. An error names the invalid parameter, unless a parameter is missing.
fn parsed<T: Parameters>(parameters: &Map<String, Value>) -> Result<T, InvalidParameter> {
    let last = RefCell::new(None);
    let entries = parameters.iter().map(|(name, value)| {
        *last.borrow_mut() = Some(name);
        (name.as_str(), value.clone())
    });
    T::deserialize(MapDeserializer::new(entries)).map_err(|error: serde_json::Error| {
        let message = error.to_string();
        // A missing field is detected only after the last parameter has been read.
        let is_missing = message.starts_with("missing field");
        InvalidParameter { parameter: last.take().filter(|_| !is_missing).cloned(), message }
    })
}
