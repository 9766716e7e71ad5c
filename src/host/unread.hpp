// Facts that rules judge by and that could not be read, with the reason. Rules say so themselves where their verdict
// hangs on one fact; this is the list for all others, so that silence never stands for "nothing is wrong".
#pragma once

#include "host/rule.hpp"

namespace tensorwire::host {

/// Adds them to `diagnosis`. What a driver or platform does not have (ENOENT, EOPNOTSUPP, ENODATA) is no such fact.
void add_unread_facts(const Host& host, Diagnosis& diagnosis);

}  // namespace tensorwire::host
