//! Arbitrary bytes as the JSON body of every request: what is taken can be looked at and written again.
#![no_main]

use doppel_api::{
    CloneFrozen, CreateDomain, CreateExec, FreezeDomain, KillOptions, PullImage, PushImage, Rename, ResizeTerminal,
    StopOptions, UpdateDomain, Validate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn body<T: DeserializeOwned + Serialize + Validate>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let Ok(()) = value.validate() else { return };
    let text = serde_json::to_vec(&value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written can be read");
    again.validate().expect("and is as good as before");
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bodies = [
        body::<CreateDomain>,
        body::<CreateExec>,
        body::<UpdateDomain>,
        body::<CloneFrozen>,
        body::<FreezeDomain>,
        body::<StopOptions>,
        body::<KillOptions>,
        body::<Rename>,
        body::<ResizeTerminal>,
        body::<PullImage>,
        body::<PushImage>,
    ];
    bodies.iter().for_each(|body| body(bytes));
});
