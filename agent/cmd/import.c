/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag import: a recording from JSON lines, as `tokenlag events` prints them. */
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "parse/event_json.h"
#include "sink/recording.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct import_opts {
	const char *in;		/* NULL or "-": standard input */
	const char *out;
	bool force;
};

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "The recording to write", 0 },
	{ "force", 'f', NULL, 0, "Overwrite FILE even if it is no recording", 0 },
	{ NULL, 'F', NULL, OPTION_HIDDEN, NULL, 0 },	/* what -f was once */
	{ 0 },
};

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct import_opts *o = state->input;

	switch (key) {
	case 'o':
		o->out = arg;
		return 0;
	case 'f':
	case 'F':
		o->force = true;
		return 0;
	case ARGP_KEY_ARG:
		if (o->in)
			argp_error(state, "one file of events at a time");
		o->in = arg;
		return 0;
	case ARGP_KEY_END:
		if (!o->out)
			argp_error(state, "where to? Say -o FILE");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

struct import {
	const struct import_opts *opts;
	const char *name;	/* of the input, for messages */
	FILE *in;
	struct event_parser *parser;
	struct rec_writer *out;
	bool complete;		/* as the header says */
	uint64_t line_no;
};

/* The header of the recording: the first line, or one made up for events written by hand. */
static int open_output(struct import *im, const struct event_line *first)
{
	const struct rec_writer_opts wopts = { .force = im->opts->force };
	struct tl_file_hdr made_up = { .tool = TL_VERSION };
	const struct tl_file_hdr *hdr = first->header;
	int err;

	if (!hdr) {
		made_up.mono_ns = first->ev->ts_ns;
		made_up.flags = first->ev->kind >= TL_RAW_FIRST ? TL_FILE_RAW : 0;
		hdr = &made_up;
	}
	im->complete = !(hdr->flags & TL_FILE_INCOMPLETE);
	err = rec_writer__open(im->opts->out, hdr, &wopts, &im->out);
	if (err)
		log_error("cannot write '%s': %s", im->opts->out, rec_writer_error_text(err));
	return err;
}

static int import_line(struct import *im, const char *line, size_t len)
{
	struct event_line got;
	int err;

	if (strspn(line, " \t\r\n") == len)
		return 0;
	err = event_parser__line(im->parser, line, len, &got);
	if (err) {
		log_error("%s, line %llu: %s", im->name, (unsigned long long)im->line_no,
			  err == -EINVAL ? event_parser__why(im->parser) : strerror(-err));
		return err;
	}
	if (!im->out) {
		err = open_output(im, &got);
		if (err || got.header)
			return err;
	} else if (got.header) {
		log_error("%s, line %llu: a second header; one recording at a time", im->name,
			  (unsigned long long)im->line_no);
		return -EINVAL;
	}
	err = rec_writer__write(im->out, got.ev);
	if (err == -EINVAL)
		log_error("%s, line %llu: a raw event, but the header does not have the flag RAW",
			  im->name, (unsigned long long)im->line_no);
	else if (err)
		log_error("cannot write '%s': %s", im->opts->out, rec_writer_error_text(err));
	return err;
}

static int import_lines(struct import *im)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	int err = 0;

	while (!err && (len = getline(&line, &size, im->in)) >= 0) {
		im->line_no++;
		err = import_line(im, line, (size_t)len);
	}
	free(line);
	if (!err && ferror(im->in)) {
		err = -EIO;
		log_error("cannot read %s: %s", im->name, strerror(-err));
	}
	if (!err && !im->out) {
		err = -ENODATA;
		log_error("%s has no events", im->name);
	}
	return err;
}

static int import(struct import *im)
{
	int err, close_err;

	im->parser = event_parser__new();
	if (!im->parser) {
		log_error("out of memory");
		return -ENOMEM;
	}
	err = import_lines(im);
	close_err = rec_writer__close(im->out, !err && im->complete);
	if (close_err && !err) {
		err = close_err;
		log_error("cannot write '%s': %s", im->opts->out, rec_writer_error_text(err));
	}
	event_parser__free(im->parser);
	return err;
}

int cmd_import(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = { options, parse_opt, "[IN.jsonl|-] -o FILE",
		"Make a recording from JSON lines as `tokenlag events` prints them. In lines "
		"written by hand, fields may be left out (zero), and ts_ms may stand for ts_ns.\v"
		"Example: tokenlag events a.tlag | grep -v chunk | tokenlag import - -o b.tlag",
		children, NULL, NULL };
	struct import_opts o = { 0 };
	struct import im = { .opts = &o, .name = "standard input", .in = stdin };
	int err;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (o.in && strcmp(o.in, "-") != 0) {
		im.name = o.in;
		im.in = fopen(o.in, "re");
		if (!im.in) {
			log_error("cannot read '%s': %s", o.in, strerror(errno));
			return CMD_FAILED;
		}
	}
	err = import(&im);
	if (im.in != stdin)
		fclose(im.in);
	return err ? CMD_FAILED : CMD_OK;
}
