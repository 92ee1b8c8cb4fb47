// The one header an author of kernels includes.
#pragma once

#include "dsl/attention_spec.h"
#include "dsl/derivative.h"
#include "dsl/module.h"
#include "dsl/probes.h"
#include "dsl/program_builder.h"
#include "dsl/schedule.h"
#include "dsl/target.h"
