//! Caches of the stateful sets and pods of federations, kept up to date by watches. Also determines the federation to
//! which an object belongs.
//!
//! Labels only narrow down which objects are watched: any user who may create a pod in some namespace can set any label
//! on it. An object belongs to a federation if it is in the same namespace and its chain of controllers, according to
//! its owner references, leads to the federation's UID: directly from a set, or from a pod through a set that belongs
//! to the federation. Kubernetes offers no stronger separation within one namespace: a user who may create pods there
//! can mount every secret in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use faultline_client::object::FederationObject;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::naming;

/// All watched objects of a kind, by namespace and name.
pub struct ObjectCache<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    writer: Mutex<Writer<K>>,
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Default for ObjectCache<K> {
    fn default() -> Self {
        let writer = Writer::default();
        ObjectCache { store: writer.as_reader(), writer: Mutex::new(writer) }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> ObjectCache<K> {
    /// Returns the object with this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Applies an event of the watch. Returns the federations whose objects may have changed; `owner` returns the
    /// federation of an object.
    pub fn follow(
        &self,
        event: Event<K>,
        owner: impl Fn(&K) -> Option<ObjectRef<FederationObject>>,
    ) -> Vec<ObjectRef<FederationObject>> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let owners = || self.store.state().iter().filter_map(|it| owner(it)).collect::<Vec<_>>();
        let mut touched = match &event {
            Event::Apply(object) | Event::Delete(object) => owner(object).into_iter().collect(),
            // The federations of objects that were deleted while the watch was broken count as well.
            Event::InitDone => owners(),
            Event::Init | Event::InitApply(_) => Vec::new(),
        };
        writer.apply_watcher_event(&event);
        if matches!(event, Event::InitDone) {
            touched.extend(owners());
            let mut told = BTreeSet::new();
            touched.retain(|it| told.insert((it.namespace.clone(), it.name.clone())));
        }
        touched
    }
}

/// Objects of a federation, by name.
#[derive(Clone, Debug, Default)]
pub struct OwnedObjects {
    /// The stateful sets of the federation.
    pub sets: BTreeMap<String, Arc<StatefulSet>>,
    /// The pods of those sets.
    pub pods: BTreeMap<String, Arc<Pod>>,
}

impl OwnedObjects {
    /// Returns the cached objects of `federation`, which has sets with these names and numbers of pods.
    pub fn of(
        federation: &FederationObject,
        names: impl Iterator<Item = (String, u32)>,
        sets: &ObjectCache<StatefulSet>,
        pods: &ObjectCache<Pod>,
    ) -> OwnedObjects {
        let namespace = federation.namespace().unwrap_or_default();
        let mut owned_objects = OwnedObjects::default();
        for (name, nodes) in names {
            let Some(set) = sets.get(&namespace, &name).filter(|it| belongs(&**it, federation)) else {
                continue;
            };
            for number in 0..nodes {
                let name = format!("{name}-{number}");
                let pod = pods.get(&namespace, &name);
                if let Some(pod) = pod.filter(|it| is_controlled(&**it, set.uid().as_deref())) {
                    owned_objects.pods.insert(name, pod);
                }
            }
            owned_objects.sets.insert(name, set);
        }
        owned_objects
    }

    /// Returns all cached objects whose chain of controllers leads to `federation`, even if its current spec does not
    /// include them.
    pub fn by_owner<F: Resource>(
        federation: &F,
        sets: &ObjectCache<StatefulSet>,
        pods: &ObjectCache<Pod>,
    ) -> OwnedObjects {
        let sets = sets.all().into_iter().filter(|it| belongs(&**it, federation));
        let sets: BTreeMap<String, Arc<StatefulSet>> = sets.map(|it| (it.name_any(), it)).collect();
        let is_of_a_set = |pod: &Pod| sets.values().any(|it| is_controlled(pod, it.uid().as_deref()));
        let pods = pods.all().into_iter().filter(|it| it.namespace() == federation.meta().namespace);
        let pods = pods.filter(|it| is_of_a_set(it)).map(|it| (it.name_any(), it)).collect();
        OwnedObjects { sets, pods }
    }
}

/// Returns whether an object is in a federation's namespace and controlled by the federation.
pub fn belongs<K: Resource, F: Resource>(object: &K, federation: &F) -> bool {
    let federation = federation.meta();
    object.meta().namespace == federation.namespace && is_controlled(object, federation.uid.as_deref())
}

/// Returns whether `claim` was created for `pod`, whose set belongs to `federation`. The claim has the name that the set
/// gives to the pod's claim. The set owns the claim, unless the volume is to be kept: the claim then has only the set's
/// labels. It may have been created for an earlier federation of the same name.
pub fn is_claim_of(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let set = controller(pod).map(|it| &it.uid);
    match claim.owner_references() {
        [] => claim.labels().contains_key(naming::UID),
        owners => owners.iter().any(|it| Some(&it.uid) == set),
    }
}

/// Returns whether `claim`, which has the label with the UID of `federation`, is deleted once the set that owns it is
/// deleted. Does not need the set, which may be gone. A claim that outlives its set has no owner.
pub fn is_deleted_with_set<C: Resource, F: Resource>(claim: &C, federation: &F) -> bool {
    let is_set = |it: &OwnerReference| {
        it.kind == StatefulSet::kind(&())
            && it.name.starts_with(&format!("{}-", federation.meta().name.as_deref().unwrap_or_default()))
            && claim.name_any().starts_with(&naming::claim(&format!("{}-", it.name)))
    };
    claim.owner_references().iter().any(is_set)
}

/// Returns whether the controller of an object has this UID.
pub fn is_controlled<K: Resource>(object: &K, by: Option<&str>) -> bool {
    by.is_some() && controller(object).map(|it| it.uid.as_str()) == by
}

/// Returns the controller of an object.
pub fn controller<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|it| it.controller == Some(true))
}

/// Returns the federation that a set claims to belong to. Reconciling the federation determines whether the claim is
/// true.
pub fn owner_of_set(set: &StatefulSet) -> Option<ObjectRef<FederationObject>> {
    let owner = controller(set).filter(|it| it.kind == FederationObject::kind(&()))?;
    Some(ObjectRef::new(&owner.name).within(&set.namespace()?))
}

/// Returns the federation that the set of a pod claims to belong to.
pub fn owner_of_pod(pod: &Pod, sets: &ObjectCache<StatefulSet>) -> Option<ObjectRef<FederationObject>> {
    let set = sets.get(&pod.namespace()?, &controller(pod)?.name)?;
    is_controlled(pod, set.uid().as_deref()).then(|| owner_of_set(&set)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::build::tests::quickstart;
    use serde_json::json;

    fn set(namespace: &str, name: &str, owner: &str) -> StatefulSet {
        let owner = json!({
            "apiVersion": "faultline.dev/v1alpha1", "kind": "Federation", "name": "quickstart", "uid": owner,
            "controller": true,
        });
        let metadata = json!({ "namespace": namespace, "name": name, "uid": format!("uid of {name}"), "ownerReferences": [owner] });
        serde_json::from_value(json!({ "metadata": metadata })).expect("a set")
    }

    fn pod(namespace: &str, name: &str, set: &str, uid: &str, labels: &BTreeMap<String, String>) -> Pod {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": uid, "controller": true,
        });
        let metadata =
            json!({ "namespace": namespace, "name": name, "labels": labels, "ownerReferences": [owner] });
        serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
    }

    struct World {
        federation: FederationObject,
        sets: ObjectCache<StatefulSet>,
        pods: ObjectCache<Pod>,
    }

    impl World {
        fn new() -> World {
            let world = World {
                federation: quickstart(),
                sets: ObjectCache::default(),
                pods: ObjectCache::default(),
            };
            world.set(Event::Apply(set("experiments", PARIS, &world.uid())));
            world
        }

        fn uid(&self) -> String {
            self.federation.uid().unwrap()
        }

        fn set(&self, event: Event<StatefulSet>) -> Vec<String> {
            self.sets.follow(event, owner_of_set).into_iter().map(|it| it.name).collect()
        }

        fn pod(&self, event: Event<Pod>) -> Vec<String> {
            let owner = |it: &Pod| owner_of_pod(it, &self.sets);
            self.pods.follow(event, owner).into_iter().map(|it| it.name).collect()
        }

        fn owned(&self) -> OwnedObjects {
            let names = [PARIS, "quickstart-rennes"].map(|it| (it.to_owned(), 3)).into_iter();
            OwnedObjects::of(&self.federation, names, &self.sets, &self.pods)
        }

        fn known(&self) -> Vec<String> {
            self.owned().pods.into_keys().collect()
        }

        fn ours(&self, name: &str) -> Pod {
            pod("experiments", name, PARIS, "uid of quickstart-paris", &BTreeMap::new())
        }
    }

    const PARIS: &str = "quickstart-paris";

    #[test]
    fn a_change_notifies_the_federation_that_controls_the_object() {
        let world = World::new();
        let pod = world.ours("quickstart-paris-0");
        assert_eq!(world.pod(Event::Apply(pod.clone())), ["quickstart"]);
        assert_eq!(world.known(), ["quickstart-paris-0"]);
        assert_eq!(world.pod(Event::Delete(pod)), ["quickstart"]);
        assert_eq!(world.known(), [""; 0]);
    }

    #[test]
    fn labels_and_names_do_not_make_an_object_belong_to_a_federation() {
        let world = World::new();
        let labels = naming::labels(&world.federation);
        let name = "quickstart-paris-1";
        let strangers = [
            // In another namespace, with all labels and references of the real one.
            pod("elsewhere", name, PARIS, "uid of quickstart-paris", &labels),
            // In the same namespace, controlled by something else, by another set of this name, or by nothing.
            pod("experiments", name, "other", "uid of other", &labels),
            pod("experiments", name, PARIS, "uid of another quickstart-paris", &labels),
            serde_json::from_value(
                json!({ "metadata": { "namespace": "experiments", "name": name, "labels": labels } }),
            )
            .expect("a pod"),
        ];
        for stranger in strangers {
            assert_eq!(world.pod(Event::Apply(stranger.clone())), [""; 0], "{stranger:?}");
            assert_eq!(world.known(), [""; 0], "{stranger:?}");
        }
        // A set in another namespace, and one in this namespace that is controlled by another federation of the same
        // name.
        world.set(Event::Apply(set("elsewhere", PARIS, &world.uid())));
        world.set(Event::Apply(set("experiments", "quickstart-rennes", "its predecessor")));
        assert_eq!(world.owned().sets.into_keys().collect::<Vec<_>>(), [PARIS]);
    }

    #[test]
    fn a_restarted_watch_drops_unseen_objects_and_notifies_their_federations() {
        let world = World::new();
        world.pod(Event::Apply(world.ours("quickstart-paris-0")));
        assert_eq!(world.pod(Event::Init), [""; 0]);
        assert_eq!(world.known(), ["quickstart-paris-0"], "old objects count until the new list is complete");
        assert_eq!(world.pod(Event::InitDone), ["quickstart"]);
        assert_eq!(world.known(), [""; 0]);
    }
}
