# SPDX-License-Identifier: Apache-2.0
# One file builds everything; products go to build/. `make demo` and `make check` install what
# they need (tools/deps); `make all` only says what is missing.

VERSION	:= 0.1.0
B	:= build
CC	:= gcc
CLANG	:= clang
BPFTOOL	:= $(firstword $(wildcard /usr/sbin/bpftool /usr/local/sbin/bpftool) bpftool)
PREFIX	?= /usr/local

# One short line per product; V=1 shows the commands.
Q	:= $(if $(V),,@)
say	= @$(if $(V),true,echo '  $(1)	$@')

WARN	:= -Wall -Wextra -Werror -Wmissing-prototypes -Wshadow -Wstrict-prototypes
CFLAGS	?= -O2 -g
CFLAGS_	:= -std=gnu11 $(WARN) $(CFLAGS) -fvisibility=hidden -Iinclude -Iagent -I$(B)/bpf \
	   -I/usr/share/include/llhttp -DTL_VERSION='"$(VERSION)"' -D_GNU_SOURCE -MMD -MP
LIBS	:= -lbpf -lelf -lz -lzstd -lcjson -lpthread -ldl

# Floors 0-3 are pure; tests and fuzzers link them alone.
PURE	:= $(wildcard agent/base/*.c agent/parse/*.c agent/engine/*.c agent/model/*.c)
IO	:= $(wildcard agent/source/*.c agent/sink/*.c)
CMD	:= $(wildcard agent/cmd/*.c)
LLHTTP	:= /usr/share/llhttp/api.c /usr/share/llhttp/http.c /usr/share/llhttp/llhttp.c
BPF	:= $(wildcard bpf/*.bpf.c)
SKEL	:= $(BPF:bpf/%.bpf.c=$(B)/bpf/%.skel.h)

obj	= $(patsubst %.c,$(B)/obj/%.o,$(1))
san	= $(patsubst %.c,$(B)/san/%.o,$(1))
LLOBJ	:= $(LLHTTP:/usr/share/llhttp/%.c=$(B)/obj/llhttp/%.o)
LLSAN	:= $(LLHTTP:/usr/share/llhttp/%.c=$(B)/san/llhttp/%.o)

all: $(B)/tokenlag

# ---- BPF: object, then skeleton ----
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_x86 -Wall -Werror -Wno-unused-parameter \
	      -Iinclude -Ibpf -idirafter /usr/include/x86_64-linux-gnu -MMD -MP
$(B)/bpf/%.bpf.o: bpf/%.bpf.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CLANG) $(BPF_CFLAGS) -c $< -o $@
$(B)/bpf/%.skel.h: $(B)/bpf/%.bpf.o
	$(call say,GEN)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf > $@.tmp && mv $@.tmp $@

# ---- agent ----
$(B)/obj/%.o: %.c | $(SKEL)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CFLAGS_) -c $< -o $@
$(B)/obj/llhttp/%.o: /usr/share/llhttp/%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -O2 -g -w -I/usr/share/include/llhttp -c $< -o $@
$(B)/libpure.a: $(call obj,$(PURE)) $(LLOBJ)
	$(call say,AR)
	$(Q)rm -f $@; ar rcs $@ $^
$(B)/tokenlag: $(call obj,$(CMD) $(IO)) $(B)/libpure.a
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(B)/libpure.a $(LIBS)

# ---- tests: the same sources, with sanitizers ----
SAN	:= -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g
$(B)/san/%.o: %.c | $(SKEL)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(filter-out -O2,$(CFLAGS_)) $(SAN) -Itests -c $< -o $@
$(B)/san/llhttp/%.o: /usr/share/llhttp/%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -w $(SAN) -I/usr/share/include/llhttp -c $< -o $@
$(B)/libpure-san.a: $(call san,$(PURE)) $(LLSAN)
	$(call say,AR)
	$(Q)rm -f $@; ar rcs $@ $^

UNIT	:= $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/test_*.c))
# malloc and friends are wrapped so that tests/oom.h can make the n-th allocation fail.
WRAP	:= -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
$(B)/tests/unit/%: $(B)/san/tests/unit/%.o $(B)/san/tests/oom.o $(call san,$(IO)) $(B)/libpure-san.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(SAN) $(WRAP) -o $@ $(filter %.o,$^) $(B)/libpure-san.a -lcmocka $(LIBS)

FUZZ	:= $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_CFLAGS := -std=gnu11 -O1 -g -w -D_GNU_SOURCE -DTL_VERSION='"$(VERSION)"' -Iinclude -Iagent -Itests \
	       -I/usr/share/include/llhttp -fno-sanitize-recover=all -MMD -MP \
	       -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
$(B)/fuzz/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CLANG) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link,address,undefined -c $< -o $@
$(B)/fuzz/llhttp/%.o: /usr/share/llhttp/%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CLANG) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link,address,undefined -c $< -o $@
$(B)/libpure-fuzz.a: $(patsubst %.c,$(B)/fuzz/%.o,$(PURE)) $(LLHTTP:/usr/share/llhttp/%.c=$(B)/fuzz/llhttp/%.o)
	$(call say,AR)
	$(Q)rm -f $@; ar rcs $@ $^
$(B)/tests/fuzz/%: $(B)/fuzz/tests/fuzz/%.o $(B)/libpure-fuzz.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CLANG) -fsanitize=fuzzer,address,undefined -o $@ $< $(B)/libpure-fuzz.a $(LIBS)

BENCH	:= $(patsubst tests/bench/%.c,$(B)/tests/bench/%,$(wildcard tests/bench/*.c))
$(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(call obj,$(IO)) $(B)/libpure.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(B)/libpure.a $(LIBS)

# Test programs that capture for real; the sanitizers see the same sources in tests/unit.
BPFTEST	:= $(patsubst tests/bpf/%.c,$(B)/tests/bpf/%,$(wildcard tests/bpf/*.c))
$(B)/tests/bpf/%: tests/bpf/%.c $(call obj,$(IO)) $(B)/libpure.a | $(SKEL)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS_) -Itests -o $@ $< $(filter %.o,$^) $(B)/libpure.a -lcmocka $(LIBS)

$(B)/tests/vm/exchange: tests/vm/exchange.c
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -static -o $@ $<

# ---- what runs inside a target: needs libc only, and one that is as old as manylinux2014's ----
TARGET_C := $(wildcard agent/target/*.c)
$(B)/libtokenlag.so: $(TARGET_C) $(wildcard agent/target/*.h include/*.h)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -std=gnu11 $(WARN) -O2 -g -D_GNU_SOURCE -fPIC -fvisibility=hidden -ftls-model=initial-exec \
		-Iinclude -shared -Wl,-soname,$(@F),-z,defs,-z,now,-z,nodelete,--no-as-needed -o $@ \
		$(TARGET_C) -l:libpthread.so.0 -l:libdl.so.2
all: $(B)/libtokenlag.so

# ---- a machine without a GPU: stand-ins for NVIDIA's libraries, and a server that drives them ----
SIM	:= $(B)/sim/libcuda.so.1 $(B)/sim/libcupti.so.13 $(B)/sim/libcupti.so.12 $(B)/sim/libcupti.so.11.8 \
	   $(B)/sim/endbr/libcuda.so.1 $(B)/sim/private/libcuda.so.1 $(B)/sim/old/libcupti.so.13 $(B)/sim/old/libcupti.so.12 \
	   $(B)/sim/libnvidia-ml.so.1 $(B)/sim/old/libnvidia-ml.so.1
SIM_H	:= $(wildcard tests/sim/*.h)
SIM_CC	= $(CC) -std=gnu11 $(filter-out -Wmissing-prototypes,$(WARN)) -O2 -g -D_GNU_SOURCE -fPIC \
	  -fvisibility=hidden -shared -Wl,-soname,$(@F) -o $@ $(filter %.c,$^) -ldl -lpthread
# Functions begin with push %rbp, as NVIDIA's do: what a uprobe costs depends on it.
SIM_PUSH := -fcf-protection=none -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-shrink-wrap \
	    -fno-optimize-sibling-calls -fno-schedule-insns2 -fno-ipa-icf
SIM_CUDA := $(addprefix tests/sim/,device.c driver.c streams.c) $(SIM_H)
SIM_CUPTI := $(addprefix tests/sim/,cupti.c buffers.c) $(SIM_H)
$(B)/sim/libcuda.so.1: $(SIM_CUDA)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(SIM_CC) $(SIM_PUSH)
$(B)/sim/endbr/libcuda.so.1: $(SIM_CUDA)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(SIM_CC) -fcf-protection=full
# For processes that have NVIDIA's runtime, too: it does not find this one by its usual name.
$(B)/sim/private/libcuda.so.1: $(SIM_CUDA)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(SIM_CC) $(SIM_PUSH) -Wl,-soname,libcuda-simulated.so
$(B)/sim/libcupti.so.11.8: SIM_V := 18
$(B)/sim/libcupti.so.12: SIM_V := 28
$(B)/sim/libcupti.so.13: SIM_V := 130001
$(B)/sim/old/libcupti.so.12: SIM_V := 24 -DSIM_OLD
$(B)/sim/old/libcupti.so.13: SIM_V := 130001 -DSIM_OLD
$(filter $(B)/sim/libcupti% $(B)/sim/old/libcupti%,$(SIM)): $(SIM_CUPTI)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(SIM_CC) -DSIM_VERSION=$(SIM_V)
$(B)/sim/old/libnvidia-ml.so.1: SIM_D := -DSIM_OLD
$(filter %/libnvidia-ml.so.1,$(SIM)): tests/sim/nvml.c agent/source/nvml_abi.h $(SIM_H)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(SIM_CC) $(SIM_D)
$(addprefix $(B)/tests/,unit/test_cuda unit/test_nvml bpf/cuda bpf/cuda_budget bench/launches): | $(SIM)
SIMSERVE := $(wildcard tests/sim/serve/*.c)
$(B)/simserve: $(call obj,$(SIMSERVE)) $(LLOBJ) | $(SIM)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -Wl,-rpath,'$$ORIGIN/sim' -o $@ $(filter %.o,$^) -lcjson -ldl -lpthread
SIMTEST	:= $(B)/tests/sim/behave $(B)/tests/sim/walk $(B)/tests/sim/injected.so
$(B)/tests/sim/behave: $(call obj,tests/sim/behave_cases.c)
$(B)/tests/sim/behave $(B)/tests/sim/walk: $(B)/tests/sim/%: $(B)/obj/tests/sim/%.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ -ldl -lpthread
$(B)/tests/sim/injected.so: tests/sim/injected.c
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(SIM_CC)
SIMTEST	+= $(B)/tests/sim/in_target
$(B)/tests/sim/in_target: $(call obj,tests/sim/in_target.c tests/sim/in_target_parts.c)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ -ldl -lpthread
SIMTEST	+= $(B)/tests/sim/inject $(B)/tests/sim/entered $(B)/tests/sim/entered-static
$(B)/tests/sim/inject: $(call obj,tests/sim/inject.c $(addprefix agent/source/,gpu.c gpu_clock.c gpu_door.c gpu_other.c gpu_tids.c inject.c inject_target.c \
		inject_x86_64.c pep768.c pep768_hand.c pep768_layout.c pep768_python.c proc_maps.c elfsyms.c seccomp.c seccomp_x86_64.c))
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -o $@ $^
$(B)/tests/sim/entered $(B)/tests/sim/entered-static: $(call obj,tests/sim/entered.c agent/source/seccomp_x86_64.c)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) $(if $(findstring static,$@),-static) -o $@ $^ -lm -lpthread

$(B)/tests/bench/target: $(call obj,tests/sim/in_target_parts.c) | $(SIM) $(B)/libtokenlag.so

unit: $(UNIT)
sim: $(SIM) $(B)/simserve $(SIMTEST)
fuzzers: $(FUZZ)
benches: $(BENCH)
bpftests: $(BPFTEST)

# ---- the commands that a person types ----
deps:
	@tools/deps
check: deps
	@$(MAKE) --no-print-directory -j2 all unit fuzzers benches bpftests sim $(B)/tests/vm/exchange
	@tools/check-floors
	@tests/run
demo: deps
	@$(MAKE) --no-print-directory -j2 all
	@tools/demo
provoke: deps
	@$(MAKE) --no-print-directory -j2 all
	@tests/provoke/t_provoke_llama --runs 10; a=$$?; tests/provoke/t_provoke_vllm --runs 10 && exit $$a
bench: deps
	@$(MAKE) --no-print-directory -j2 all benches
	@tests/bench/run
install: all
	install -D $(B)/tokenlag $(DESTDIR)$(PREFIX)/bin/tokenlag
	install -D -m 644 $(B)/libtokenlag.so $(DESTDIR)$(PREFIX)/lib/tokenlag/libtokenlag.so
	for m in doc/man/*.1; do install -D -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man1/$${m##*/}; done
clean:
	rm -rf $(B)

.PHONY: all unit fuzzers benches bpftests sim deps check demo provoke bench install clean
.SECONDARY:
.DELETE_ON_ERROR:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
