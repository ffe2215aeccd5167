//! Parameters, and what may be switched on that is wrong.

use faultline_core::Span;

use crate::defects::defects;
use crate::placement::ReplicateTo;

/// Parameters of TIC.
#[derive(Clone, Debug)]
pub struct Config {
    /// From one checkpoint of a process to its next, forced ones included (tau).
    pub tau: Span,
    /// Whether a thief takes a checkpoint before it asks for a task, as printed (section 4, event CP0). Nothing depends on
    /// it.
    pub before_asking: bool,
    /// Copies of each checkpoint beside the owner's own. A storage server counts as one.
    pub replicas: u16,
    /// Where they are.
    pub replicate_to: ReplicateTo,
    /// Rules that are broken on purpose.
    pub defects: Defects,
}

defects! {
    /// A restored process does not ask what became of the tasks that it lent.
    NoQuery,
    /// An absorbed graph is not looked for in the images of other absorbed processes, so that it may come twice.
    AbsorbedTwice,
}
