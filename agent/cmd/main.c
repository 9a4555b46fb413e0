/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag: picks the subcommand. */
#include "cmd/cmd.h"
#include "cmd/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;	/* one line of --help */
} commands[] = {
	{ "list", cmd_list,
	  "engines on this host: pid, kind, version, ports, what could be attached" },
	{ "doctor", cmd_doctor, "what this kernel, this user and an engine allow, probe by probe" },
	{ "record", cmd_record, "capture running servers to a file" },
	{ "report", cmd_report, "what a recording says: the answer, percentiles, requests" },
	{ "why", cmd_why, "waterfall of one request: where its time went" },
	{ "blame", cmd_blame, "who slowed whom: victims, culprits, mechanisms, in ms" },
	{ "events", cmd_events, "print a recording as JSON lines" },
	{ "import", cmd_import, "make a recording from such lines" },
	{ NULL, NULL, NULL },
};

static void print_help(FILE *f)
{
	fputs("Usage: tokenlag COMMAND [OPTION...]\n"
	      "Says where each token's lag came from, on LLM servers that are already running.\n\n",
	      f);
	for (const struct command *c = commands; c->name; c++)
		fprintf(f, "  %-10s %s\n", c->name, c->summary);
	fputs("\n"
	      "  -h, --help this list; `tokenlag COMMAND --help` says more\n"
	      "  --version  the version\n"
	      "  -q, -v     before or behind the command: say less, say more\n\n"
	      "Example: capture 30 seconds of every engine on this host, then read the answer\n"
	      "  tokenlag record -d 30 -o trace.tlag && tokenlag report trace.tlag\n",
	      f);
}

static const struct command *find_command(const char *name)
{
	for (const struct command *c = commands; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

static int run_command(const struct command *c, int argc, char **argv)
{
	char name[64], help[] = "--help";

	/* -h is what many type; argp knows only -? */
	if (argc == 2 && strcmp(argv[1], "-h") == 0)
		argv[1] = help;
	/* argp shows this in usage lines and error messages */
	snprintf(name, sizeof(name), "tokenlag %s", c->name);
	argv[0] = name;
	return c->run(argc, argv);
}

int main(int argc, char **argv)
{
	const struct command *c;
	char dash_h[] = "-h";
	bool wants_help;
	int i;

	argp_err_exit_status = CMD_USAGE;
	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		const char *a = argv[i];

		if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0 || strcmp(a, "-?") == 0) {
			print_help(stdout);
			return CMD_OK;
		}
		if (strcmp(a, "--version") == 0 || strcmp(a, "-V") == 0) {
			puts("tokenlag " TL_VERSION);
			return CMD_OK;
		}
		if (strcmp(a, "-q") == 0 || strcmp(a, "--quiet") == 0) {
			log_set_level(LOG_QUIET);
		} else if (strcmp(a, "-v") == 0 || strcmp(a, "--verbose") == 0) {
			log_set_level(LOG_VERBOSE);
		} else {
			log_error("unknown option '%s'; try 'tokenlag --help'", a);
			return CMD_USAGE;
		}
	}
	if (i == argc) {
		print_help(stderr);
		return CMD_USAGE;
	}
	wants_help = strcmp(argv[i], "help") == 0;
	i += wants_help;
	if (i == argc) {
		print_help(stdout);
		return CMD_OK;
	}
	c = find_command(argv[i]);
	if (!c) {
		log_error("unknown command '%s'; 'tokenlag --help' lists them", argv[i]);
		return CMD_USAGE;
	}
	return wants_help ? run_command(c, 2, (char *[]){ argv[i], dash_h, NULL }) : run_command(c, argc - i, argv + i);
}
