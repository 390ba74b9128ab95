package Idem::Pages;

# The commands of a page of documentation, run in the order in which they stand there, against what the test has set up.
# Each command must have its step in the test, and each step its command: a page cannot show what nobody has tried.

use strict;
use warnings;
use Exporter 'import';
use Idem::Util;
use Test::More;

our @EXPORT_OK = qw(blocks commands follow);

# The blocks of code of a page: { language, section, text }. Indented ones have no language.
sub blocks {
    my ($file) = @_;
    my (@blocks, $section, $open);
    for my $line (split /\n/, slurp(source_dir() . "/$file")) {
        if ($open && defined $open->{language}) {
            $line =~ /^```/ ? undef $open : ($open->{text} .= "$line\n");
        }
        elsif ($line =~ /^```(\w*)/) {
            push @blocks, $open = { language => $1, section => $section, text => '' };
        }
        elsif ($line =~ /^ {4,}(.*)/ || ($open && $line =~ /^()\s*$/)) {
            push @blocks, $open = { section => $section, text => '' } unless $open;
            $open->{text} .= "$1\n";
        }
        else {
            undef $open;
            $section = $1 if $line =~ /^#+ (.*)/;
        }
    }
    die "$file: a fence is not closed\n" if $open && defined $open->{language};
    return @blocks;
}

# The commands of a block. In one without a language only lines that begin with a tool of ours, of httpd's or of
# PostgreSQL's, or with curl, are commands.
sub commands {
    my ($block) = @_;
    my $text = $block->{text} =~ s/\\\n\s*/ /gr;
    my @lines = grep { /\S/ } split /\n/, $text;
    return @lines if ($block->{language} // '') eq 'sh';
    return defined $block->{language} ? () : grep { /^(?:[A-Z_]+=\S+ )*(?:idempotencyctl|apachectl|curl|psql|pg_\w+|promtool) / } @lines;
}

# follow($file, place => { text of the page => what it is here } or a sub for it, apache => sub($text) for blocks of that language,
#     run => sub($command) that returns exit status and output,
#     steps => [ [ qr/the command/, { before => sub, status => 0, says => qr//, silent => 1, run => sub, after => sub } ], ... ])
sub follow {
    my ($file, %arg) = @_;
    my @steps = @{ $arg{steps} };
    for my $block (blocks($file)) {
        my $language = $block->{language} // '';
        if ($language !~ /^(?:sh)?\z/) {
            $arg{$language} or do { fail("$file: nobody knows what to do with a block of '$language'"); next };
            $arg{$language}->($block->{text});
        }
        for my $command (commands($block)) {
            my $name = "$file, $block->{section}: $command";
            my ($like, $step) = @{ shift(@steps) // [ qr/(?!)/ ] };
            $command =~ $like or do { fail("$name: has its step in the test, which is at $like"); return };
            $step->{before}->() if $step->{before};
            my %place = ref $arg{place} eq 'CODE' ? $arg{place}->() : %{ $arg{place} || {} };
            my $here = $command;
            $here =~ s/\Q$_\E/$place{$_}/g for sort { length $b <=> length $a } keys %place;
            my ($status, $said) = ($step->{run} || $arg{run})->($here);
            is($status, $step->{status} // 0, $name) or diag("$here\n$said");
            like($said, $step->{says}, 'says so') if $step->{says};
            is($said, '', 'says nothing') if $step->{silent};
            $step->{after}->($said) if $step->{after};
        }
    }
    is(scalar @steps, 0, "$file: every step has its command") or diag("left: $steps[0][0]");
    return;
}

1;
