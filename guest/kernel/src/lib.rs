//! x
#![no_std]
#![forbid(unsafe_code)]
use doppel_machine::pod_struct;
pod_struct! { 
/// t
pub struct Timespec { 
/// s
pub sec: i64, 
/// n
pub nsec: i64 } }
