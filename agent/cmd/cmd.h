/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands. Each parses its own arguments with argp; argv[0] is "tokenlag NAME". */
#ifndef TL_CMD_H
#define TL_CMD_H

enum cmd_exit {
	CMD_OK = 0,
	CMD_FAILED = 1,	/* said why in one sentence on stderr */
	CMD_USAGE = 2,	/* wrong use: unknown option, missing argument. argp exits with it too */
};

/* Return an exit status of enum cmd_exit. */
int cmd_list(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_why(int argc, char **argv);
int cmd_blame(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_import(int argc, char **argv);

#endif
