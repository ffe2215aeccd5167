//! Traces of task-based programs, built step by step.

use faultline_core::{
    Attempt, Claim, Digest, Fact, ImageName, Incarnation, Life, Promise, Promises, Scope, Span, TaskId,
    Theft, TheftStep, Witness,
};

use super::{Run, p};

/// A run of a task-based program with one process per cluster.
pub struct TaskRun(pub Run);

/// Returns the first theft by `thief` from `victim`.
pub fn theft(victim: u32, thief: u32) -> Theft {
    Theft { victim: p(victim), thief: p(thief), life: Life(1), number: 1 }
}

impl TaskRun {
    pub fn new(processes: u32) -> TaskRun {
        TaskRun::promising(processes, &[])
    }

    pub fn promising(processes: u32, promises: &[Promise]) -> TaskRun {
        let clusters: Vec<[u32; 1]> = (0..processes).map(|it| [it]).collect();
        let clusters: Vec<&[u32]> = clusters.iter().map(|it| &it[..]).collect();
        let mut run = Run::new(&clusters);
        run.context.promises = Promises::of_scope(Scope::Process).with(promises);
        TaskRun(run)
    }

    pub fn state(&mut self, process: u32, fact: Fact) {
        self.0.wait(Span::from_millis(1));
        self.0.state(process, fact);
    }

    /// Makes the first task spawn this many tasks, and returns their identities.
    pub fn begin(&mut self, process: u32, spawned: u32) -> Vec<TaskId> {
        self.spawn(process, TaskId::MAIN, spawned);
        (0..spawned).map(|index| TaskId::MAIN.child(index)).collect()
    }

    pub fn ran(&mut self, process: u32, task: TaskId, spawned: u32) {
        self.spawn(process, task, spawned);
        let state = self.0.states.get_mut(&process).expect("the process is part of the run");
        state.delivered = state.delivered.wrapping_add(task.0);
    }

    fn spawn(&mut self, process: u32, task: TaskId, spawned: u32) {
        let state = self.0.states.get_mut(&process).expect("the process is part of the run");
        let children = (0..spawned).map(|index| task.child(index).0);
        state.sent = children.fold(state.sent, u64::wrapping_add);
        self.state(process, Fact::Ran { task, spawned, cost_us: 1000 });
    }

    pub fn step(&mut self, process: u32, theft: Theft, task: TaskId, step: TheftStep) {
        self.state(process, Fact::Theft { theft, task, step });
    }

    pub fn lend(&mut self, process: u32, theft: Theft, task: TaskId) {
        self.step(process, theft, task, TheftStep::Lent);
    }

    /// Makes a checkpoint of the process's state durable. The witness ignores results from other processes.
    pub fn save(&mut self, process: u32, sn: u32) -> (ImageName, Witness) {
        let life = self.0.states[&process].life;
        let name = self.0.image(process, life.incarnation().0, sn);
        let witness = self.0.witness(process);
        self.state(process, Fact::Saved(Box::new((name, witness, 0))));
        self.0.durable(process, name);
        (name, witness)
    }

    pub fn commit(&mut self, process: u32, sn: u32, forced: bool) -> (ImageName, Witness) {
        let saved = self.save(process, sn);
        let position = saved.0.position();
        let (attempt, frozen, vectors) = (Attempt(1), Span::ZERO, Default::default());
        self.0.claim(process, Claim::Committed { position, attempt, forced, frozen, vectors });
        saved
    }

    pub fn restore(&mut self, process: u32, from: Option<(ImageName, Witness)>) {
        let incarnation = self.0.states[&process].life.incarnation();
        let (name, witness) = from.unzip();
        let witness = witness.unwrap_or_default();
        let state = self.0.states.get_mut(&process).expect("the process is part of the run");
        (state.sent, state.delivered) = (witness.sent, witness.delivered);
        self.state(process, Fact::Restored(Box::new((name, incarnation, witness))));
    }

    /// Absorbs the state of a permanently failed process into `by`.
    pub fn absorb(&mut self, by: u32, of: u32, from: Option<(ImageName, Witness)>) {
        let (name, witness) = from.unzip();
        self.state(
            by,
            Fact::Absorbed(Box::new((p(of), name, witness.unwrap_or_default(), Incarnation::default()))),
        );
    }

    /// Hashes a multiset of tasks in the same way as a witness does.
    pub fn sums(&self, tasks: &[TaskId]) -> u64 {
        tasks.iter().fold(0, |sum, task| sum.wrapping_add(task.0))
    }

    pub fn finish(&mut self, process: u32, spawned: u64, run: u64) {
        let witness = Witness { sent: spawned, delivered: run, ..self.0.witness(process) };
        self.state(process, Fact::Finished(Box::new((witness, Digest([1; 16])))));
    }

    pub fn lose_permanently(&mut self, process: u32) {
        self.0.lose_permanently(process);
    }
}
