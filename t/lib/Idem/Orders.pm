package Idem::Orders;

# A backend that has a database of its own things: a CGI script that writes one order (and one outbox row) and commits,
# so that the effects of a route can be counted where they are. By request headers it waits at named points:
#
#   X-Hold: before TAG    has written, and not committed
#   X-Hold: committing TAG  likewise, and holds the record's lock: its transaction has called a function of the module
#   X-Hold: after TAG     has committed, and not answered
#   X-Lock: A B           locks these two rows of a table, one after the other; between them: X-Hold: locked TAG
#   X-Answer: STATUS      answers with this status (the default is 201), whatever it did
#
# The same as an HTTP server: ->serve starts it, ->place('/path', kind, { by => 'proxy' }) leads there.
#
# What it does for the module is the path's last part: `external` and `repeatable` know nothing of it,
# `transactional` settles in its own transaction, with its response (`bare`: without; `forgets`: not at all).
# And the points of mod_stop (t/fault/mod_stop.c): X-Stop: handler|answered|settled TAG.

use strict;
use warnings;
use File::Copy ();
use Idem::Util;
use IO::Socket::INET;

# new(t): the table, the role, the script, the folder for the points. To be called before httpd starts.
sub new {
    my ($class, $t) = @_;
    my $self = bless { t => $t, dir => $t->root . '/points' }, $class;
    mkdir $self->{dir};
    give($self->{dir});
    $t->pg->do(<<'SQL') unless $t->pg->value("SELECT to_regclass('orders')");
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, operation uuid NOT NULL, generation int NOT NULL);
CREATE ROLE shop LOGIN IN ROLE idempotency_backend;
GRANT SELECT, INSERT ON orders TO shop;
CREATE TABLE stock (id int PRIMARY KEY);
INSERT INTO stock VALUES (1), (2);
GRANT SELECT, UPDATE ON stock TO shop;
SQL
    $self->{script} = $t->backend->script('orders.cgi', $self->program);
    File::Copy::copy(needed(out_dir() . '/mod_stop.so'), $t->root . '/mod_stop.so') or die "copy: $!\n";
    chmod 0644, $t->root . '/mod_stop.so';
    $t->httpd->{env}{IDEM_STOP_DIR} = $self->{dir};
    return $self;
}

sub load { "LoadModule stop_module $_[0]{t}{root}/mod_stop.so\n" }
sub script { $_[0]{script} }

# Text of a protected place: place('/external', 'external', more lines); { by => 'proxy' } before them for the server, { by => 'fpm' }
# for its like in PHP (orders.php), where the test has that backend.
sub place {
    my ($self, $path, $kind, @more) = @_;
    my $effect = $kind =~ /^(?:external|repeatable)$/ ? $kind : 'transactional';
    my $by = ref $more[0] ? shift(@more)->{by} : 'cgi';
    return ($by eq 'fpm' ? $self->fpm($path, $kind) : $by eq 'proxy' ? sprintf(qq(ProxyPass "$path" "http://127.0.0.1:%d/$kind"\n), $self->serve) : qq(ScriptAlias "$path" "$self->{script}/$kind"\n))
        . join("\n    ", "<Location \"$path\">", '@AUTH@', 'IdempotencyRoute ' . substr($path, 1), 'IdempotencyTenant server', 'IdempotencyPrincipal user',
        "IdempotencyEffect $effect", @more) . "\n</Location>\n";
}

# The same program as a server of its own, a process for each request; its port.
sub serve {
    my ($self) = @_;
    return $self->{port} if $self->{port};
    my $port = free_port();
    my $pid = spawn(cmd => [ $self->{script}, $port ], session => 1, out => $self->{t}->root . '/orders.log', dir => $self->{t}->root);
    at_end(sub { kill KILL => -$pid; waitpid $pid, 0 });
    wait_for(sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) }) or die "the orders' server does not start\n";
    return $self->{port} = $port;
}

# The lines that lead to orders.php; the kind follows the name of the file, as path information.
sub fpm {
    my ($self, $path, $kind) = @_;
    my ($pg, $php) = ($self->{t}->pg, $self->{t}->backend->php_dir);
    my %is = (HOST => $pg->socket_dir, PORT => $pg->port, DATABASE => $pg->database, DIR => $self->{dir});
    spew("$php/orders.php", slurp(source_dir() . '/t/lib/Idem/orders.php') =~ s/\@([A-Z]+)\@/$is{$1}/gr, 0644) unless -e "$php/orders.php";
    return qq(Alias "$path" "$php/orders.php/$kind"\n<Location "$path">\nSetHandler "@{[ $self->{t}->backend->fpm_handler ]}"\n</Location>\n);
}

# The processes of the server that are at work.
sub busy { my ($self) = @_; return grep { m{(\d+)\.busy\z} && kill 0 => $1 } glob "$self->{dir}/*.busy" }

# The script that waits there.
sub pid { my ($self, $tag) = @_; return slurp("$self->{dir}/$tag") =~ s/\s+//r }

sub reached { my ($self, $tag) = @_; return -e "$self->{dir}/$tag" }
sub go { my ($self, @tags) = @_; spew("$self->{dir}/$_.go", '', 0644) for @tags; return }

sub count {
    my ($self, $operation) = @_;
    return $self->{t}->pg->value('SELECT count(*) FROM orders' . (defined $operation ? " WHERE operation = '$operation'" : ''));
}

sub outbox { my ($self, $operation) = @_; return $self->{t}->pg->value("SELECT count(*) FROM idempotency_outbox WHERE operation_id = '$operation'") }

# The script is a CGI; with a port as its argument it is a server of the same, one process a connection.
sub program {
    my ($self) = @_;
    my $pg = $self->{t}->pg;
    return sprintf <<'PERL', $pg->socket_dir, $pg->port, $pg->database, $self->{dir};
use DBI;
use DBD::Pg;
local $SIG{__WARN__} = sub { };
my ($host, $port, $database, $dir) = ('%s', %d, '%s', '%s');
sub mark {
    my ($name, $text) = @_;
    open(my $mark, '>', "$dir/$name.new") or die "mark: $!";
    print $mark $text;
    close $mark;
    rename "$dir/$name.new", "$dir/$name";
}
# What the request asks for: (status, answer)
sub order {
    my ($env) = @_;
    my ($operation, $generation) = map { $env->{"IDEMPOTENCY_$_"} // $env->{"HTTP_IDEMPOTENCY_$_"} } qw(OPERATION_ID GENERATION);
    my ($kind) = ($env->{PATH_INFO} // '') =~ m{(\w+)\z};
    my ($point, $tag) = split / /, $env->{HTTP_X_HOLD} // '';
    my $status = $env->{HTTP_X_ANSWER} // 201;
    my $hold = sub {
        return unless ($point // '') eq $_[0];
        mark($tag, "$$\n");
        for (1 .. 12000) { last if -e "$dir/$tag.go"; select undef, undef, undef, 0.01 }
    };
    my ($answer, $db, $failed);
    eval {
        $db = DBI->connect("dbi:Pg:host=$host;port=$port;dbname=$database;user=shop", undef, undef, { RaiseError => 1, PrintError => 0, AutoCommit => 0 });
        for my $n (split / /, $env->{HTTP_X_LOCK} // '') {
            $db->do('SELECT FROM stock WHERE id = ? FOR UPDATE', undef, $n);
            $hold->('locked');
        }
        my ($id) = $db->selectrow_array('INSERT INTO orders (operation, generation) VALUES (?, ?) RETURNING id', undef, $operation, $generation);
        $answer = qq({"order":$id,"generation":$generation});
        $hold->('before');
        if ($kind =~ /^(?:transactional|bare)$/) {
            $db->do('SELECT idempotency_outbox_put(?, ?, ?, ?::text::bytea)', undef, $operation, $generation, 'order', $answer);
            $hold->('committing');
            $db->do('SELECT idempotency_settle(?, ?, ?, ?, ?, ?::text::bytea)', undef, $operation, $generation, 'succeeded',
                $kind eq 'bare' ? (undef, undef, undef) : (201, '{"Content-Type":"application/json"}', $answer));
        }
        $db->commit;
        1;
    } or do {
        my $state = $DBI::state // '';
        ($failed, $status, $answer) = (1, 500, qq({"error":"$state"}));
        eval { $db->rollback if $db };
    };
    eval { $db->disconnect if $db };
    $hold->('after') unless $failed;
    # for a script that has outlived the child that started it
    mark("$tag.end", $answer) if $tag;
    return ($status, $answer);
}
sub serve {
    require IO::Socket::INET;
    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $_[0], Listen => 256, ReuseAddr => 1) or die "port: $@";
    $SIG{$_} = 'IGNORE' for qw(CHLD PIPE);
    while (1) {
        my $client = $listen->accept or next;
        my $pid = fork;
        last if defined $pid && !$pid && (close($listen), 1) && one($client);
        close $client;
    }
    exit 0;
}
# One request of one connection.
sub one {
    my ($client) = @_;
    my ($path) = (<$client> // '') =~ m{^\S+ (\S+)} or return 1;
    mark("$$.busy", '');
    my %%env = (PATH_INFO => $path);
    while (defined(my $line = <$client>)) {
        my ($name, $value) = $line =~ /^([^:\r\n]+):\s*(.*?)\s*$/ or last;
        $env{'HTTP_' . uc($name) =~ tr/-/_/r} = $value;
    }
    read $client, my $body, $env{HTTP_CONTENT_LENGTH} // 0;
    my ($status, $answer) = order(\%%env);
    printf $client "HTTP/1.1 $status Status\r\nContent-Type: application/json\r\nContent-Length: %%d\r\nConnection: close\r\n\r\n%%s", length $answer, $answer;
    unlink "$dir/$$.busy";
    return 1;
}
serve(@ARGV) if @ARGV;
1 while read STDIN, my $body, 65_536;
my ($status, $answer) = order(\%%ENV);
print "Status: $status\nContent-Type: application/json\n\n$answer";
PERL
}

1;
